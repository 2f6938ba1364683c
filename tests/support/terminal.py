"""A real terminal for a command: a pseudo-terminal, and a screen that shows what a person would see."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pyte

# The terminal becomes the command's own, so that Ctrl-C reaches it as a signal.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

PATIENCE = 60
"""Seconds until something that should appear is taken as never appearing."""


class _Screen(pyte.HistoryScreen):
    """A screen that answers questions as a terminal does, for example where the cursor is."""

    def __init__(self, columns: int, lines: int, master: int) -> None:
        super().__init__(columns, lines, history=10_000, ratio=0.5)
        self._master = master

    def write_process_input(self, data: str) -> None:
        os.write(self._master, data.encode())


class Terminal:
    """What is on the screen of a command, and what scrolled out of it.

    Attributes:
        process: The command.
        raw: Every byte that it wrote.
    """

    def __init__(self, master: int, columns: int, lines: int) -> None:
        self._master = master
        self._screen = _Screen(columns, lines, master)
        self._stream: Any = pyte.ByteStream(self._screen)
        self._changed = asyncio.Condition()
        self.raw = b""
        self.is_closed = False
        self.process: asyncio.subprocess.Process | None = None

    def type(self, text: str) -> None:
        """Types as a person does."""
        os.write(self._master, text.encode())

    @contextlib.contextmanager
    def line_editing(self) -> Iterator[list[bool]]:
        """Watches whether the terminal does its own line editing; yields a list that is not empty then.

        Ctrl-C is a signal at such a moment, and a Ctrl-D may go to nobody.
        """
        seen: list[bool] = []
        is_over = threading.Event()

        def watch() -> None:
            # Without pauses: such a moment is short.
            while not is_over.is_set() and not seen:
                if termios.tcgetattr(self._master)[3] & termios.ICANON:
                    seen.append(True)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            is_over.set()
            watcher.join()

    def lines(self) -> list[str]:
        """Everything that can be seen or scrolled to, without blank lines at the end."""
        above = [self._text(line) for line in self._screen.history.top]
        found = [line.rstrip() for line in [*above, *self._screen.display]]
        while found and not found[-1]:
            found.pop()
        return found

    def _text(self, line: Any) -> str:
        return "".join(line[column].data for column in range(self._screen.columns))

    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines())

    async def until(self, wanted: str, *, gone: bool = False) -> str:
        """Waits until a text can be seen, or no longer; returns everything that can be seen."""
        try:
            async with asyncio.timeout(PATIENCE), self._changed:
                while (wanted in self.text()) is gone:
                    assert not self.is_closed, f"ended without {wanted!r}:\n{self.text()}"
                    await self._changed.wait()
        except TimeoutError:
            message = f"no {wanted!r} on the screen:\n{self.text()}"
            raise AssertionError(message) from None
        return self.text()

    async def ended(self) -> int:
        """Waits for the command's end; returns its exit code."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def read(self) -> None:
        """Feeds the screen until the command has closed the terminal."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.run_in_executor(None, os.read, self._master, 65536)
            except OSError:
                data = b""
            self.raw += data
            self._stream.feed(data)
            async with self._changed:
                self.is_closed = not data
                self._changed.notify_all()
            if not data:
                return


@contextlib.asynccontextmanager
async def terminal(
    *command: object, columns: int = 80, lines: int = 24, environment: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    """Runs a command in a terminal; whatever still runs at the end is ended."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    screen = Terminal(master, columns, lines)
    screen.process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TAKE_TERMINAL),
        *map(str, command),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
    )
    os.close(slave)
    reading = asyncio.get_running_loop().create_task(screen.read())  # awaited below
    try:
        yield screen
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(screen.process.pid, signal.SIGKILL)
        await screen.process.wait()
        await reading
        os.close(master)
