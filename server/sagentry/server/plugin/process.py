"""Plugins that the server launches: started behind the launcher, watched, restarted with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from sagentry.server.plugin import launcher
from sagentry.server.plugin.target import LONGEST_SOCKET_PATH, CommandTarget

logger = logging.getLogger(__name__)

LONGEST_LINE = 4096
"""Longest line of a plugin's output that is logged; a longer one is cut."""

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=10)
STEADY_AFTER = timedelta(seconds=10)
"""A process that ran so long may be restarted at once again."""

STOP_BUDGET = timedelta(seconds=5)


class PluginProcess:
    """One plugin process after another, until it is told to stop.

    Args:
        name: The plugin's name in the configuration, for its log lines.
        target: The command.
        runtime_dir: Where socket folders go if the path is short enough; otherwise the system's temporary
            folder.
        on_change: Called when a process has started (with its address) or ended (with None and why).
    """

    def __init__(
        self,
        name: str,
        target: CommandTarget,
        *,
        runtime_dir: Path,
        on_change: Callable[[str | None, str], None],
    ) -> None:
        """Begins with no process."""
        self.starts = 0
        self._name = name
        self._target = target
        self._runtime_dir = runtime_dir
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keeps a process running until it is cancelled; then ends it and returns."""
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        try:
            while True:
                begin = loop.time()
                reason = await self._run_once()
                self._on_change(None, reason)
                logger.warning("plugin process ended", extra={"plugin": self._name, "why": reason})
                steady = loop.time() - begin >= STEADY_AFTER / timedelta(seconds=1)
                pause = FIRST_PAUSE if steady else min(pause * 2, LONGEST_PAUSE)
                jitter = random.uniform(0.8, 1.2)  # noqa: S311 - spreads restarts, guards nothing
                await asyncio.sleep(pause.total_seconds() * jitter)
        finally:
            await self._end()

    async def _run_once(self) -> str:
        folder = self._socket_folder()
        address = f"unix:{folder}/{launcher.SOCKET_NAME}"
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            launcher.__file__,
            str(folder),
            *self._target.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A group of its own: a Ctrl-C at the server's terminal is the server's to answer.
            start_new_session=True,
        )
        self._on_change(address, "")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._log_output(self._process))
            code = await self._process.wait()
        return _reason(code)

    def _socket_folder(self) -> Path:
        for parent in (self._runtime_dir, None):
            folder = Path(tempfile.mkdtemp(prefix="sgp-", dir=parent))
            if len(f"{folder}/{launcher.SOCKET_NAME}".encode()) <= LONGEST_SOCKET_PATH:
                return folder
            folder.rmdir()
        message = "the system's temporary folder has too long a path for a socket"
        raise OSError(message)

    async def _log_output(self, process: asyncio.subprocess.Process) -> None:
        """Takes all output as it comes, so that the plugin never blocks, and logs it by lines."""
        stream = process.stdout
        if stream is None:
            return
        rest = b""
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:LONGEST_LINE]
            for line in lines:
                text = line[:LONGEST_LINE].decode(errors="replace").rstrip()
                logger.info("plugin output", extra={"plugin": self._name, "line": text})

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            # The launcher takes this as the end of the server, and ends all there is.
            process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_BUDGET / timedelta(seconds=1)):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


def _reason(code: int) -> str:
    if code == 127:  # noqa: PLR2004 - the shell's code for a program that is not there
        return "its program cannot be started"
    if code > 128:  # noqa: PLR2004 - the shell's codes for signals
        return f"its process was ended by signal {code - 128}"
    if code < 0:
        return f"its launcher was ended by signal {-code}"
    return f"its process exited with code {code}"
