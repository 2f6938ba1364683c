"""A conversation in a terminal: what is said above, what is being said, and a line to type on."""

from __future__ import annotations

import asyncio
import getpass
import io
from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from rich.console import Console, Group, RenderableType
from rich.text import Text

from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.cli.connection import explained
from sagentry.cli.rows import as_renderable
from sagentry.cli.safe_text import safe_line
from sagentry.cli.scroll import Scroll, is_running
from sagentry.cli.status_line import ConnectionState
from sagentry.cli.tail import tail_of
from sagentry.client import AgentView, SagentryError, ScopedClient

MOST_HISTORY = 60
"""Rows of an old conversation that are shown at the beginning."""

ROOM = 6
"""Lines that the prompt, its status and what is printed above it need."""

HELP = "Enter sends · Ctrl-C cancels the run · Ctrl-D leaves, the agent stays"


class ChatSession:
    """One sitting. The terminal is the caller's."""

    def __init__(self, scope: ScopedClient, agent_id: str, *, profile: str, address: str) -> None:
        self._scope = scope
        self._agent_id = agent_id
        self._address = address
        self._options = pb.StartOptions(profile=profile) if profile else None
        self._view = AgentView()
        self._scroll = Scroll()
        self._state = ConnectionState()
        self._sending = 0
        self._has_begun = False
        self._work = asyncio.TaskGroup()
        self._prompt: PromptSession[str] = PromptSession(
            message=self._message,
            key_bindings=self._keys(),
            erase_when_done=True,
            reserve_space_for_menu=0,
        )
        # As often as an eye can see.
        self._prompt.app.min_redraw_interval = 0.05

    async def run(self) -> None:
        """Talks until the user leaves. Raises SagentryError when the stream ends for good."""
        try:
            async with self._work:
                following = self._work.create_task(self._follow())
                self._print(Text(HELP, "dim"))
                # Between two lines as well: see `_print`.
                with self._prompt.app.input.raw_mode():
                    await self._read_lines()
                following.cancel()
        except BaseExceptionGroup as errors:
            known, others = errors.split(SagentryError)
            if known is None or others is not None:
                raise
            # The first says what happened; others are its consequences.
            raise first_of(known) from None

    async def _read_lines(self) -> None:
        while True:
            try:
                line = await self._prompt.prompt_async()
            except EOFError:
                return
            if line.strip():
                self._work.create_task(self._send(line))

    async def _send(self, text: str) -> None:
        self._sending += 1
        try:
            await self._scope.add_message(self._agent_id, text, options=self._options)
        except SagentryError as error:
            self._print(Text(f"not sent: {safe_line(explained(error, self._address))}", "red"))
            if not self._prompt.default_buffer.text:
                # To be mended, not typed again.
                self._prompt.default_buffer.text = text
        finally:
            self._sending -= 1
            self._prompt.app.invalidate()

    async def _cancel(self) -> None:
        try:
            await self._scope.cancel_run(self._agent_id, self._view.agent.run_id)
        except SagentryError as error:
            self._print(Text(f"not cancelled: {safe_line(error.message)}", "red"))

    async def _follow(self) -> None:
        viewer = safe_line(getpass.getuser()) or "somebody"
        async with self._scope.follow(self._agent_id, viewer_id=viewer) as following:
            self._view = following.view
            async for item in following:
                self._scroll.see(item)
                self._state.see(item)
                if self._view.is_complete:
                    self._print_settled()
                self._prompt.app.invalidate()

    def _print_settled(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            left_out = self._scroll.skip(self._view, MOST_HISTORY)
            if left_out:
                note = f"… {left_out} earlier rows: sagentry transcript {self._agent_id}"
                self._print(Text(note, "dim"))
        settled = [as_renderable(one) for one in self._scroll.settled(self._view)]
        if settled:
            self._print(Group(*settled))

    # --- what is seen

    def _print(self, what: RenderableType) -> None:
        """Prints above the prompt.

        Not by prompt_toolkit's run_in_terminal: that gives the terminal back its own line editing for the
        moment, and a Ctrl-C of that moment would end the program, a Ctrl-D would be lost.
        """
        app = self._prompt.app
        if app.is_running:
            app.renderer.erase()
        app.output.write_raw(self._drawn(lambda console: console.print(what)).replace("\n", "\r\n"))
        app.output.flush()
        if app.is_running:
            app.renderer.reset()
            app.renderer.request_absolute_cursor_position()
            app.invalidate()

    def _message(self) -> AnyFormattedText:
        live = self._scroll.live(self._view) if self._has_begun else None

        def draw(console: Console) -> None:
            height = self._size(self._prompt.app.output)[1] - ROOM
            segments = tail_of(live, console, console.options, height)
            console.print(_Segments(segments), end="")
            console.print(Text(self._status(), "dim", no_wrap=True, overflow="ellipsis"))

        return ANSI(self._drawn(draw) + "> ")

    def _status(self) -> str:
        sending = " · sending" if self._sending else ""
        hint = " · Ctrl-C cancels" if is_running(self._view) else ""
        return f"{self._state.line(self._view)}{sending}{hint}"

    def _drawn(self, draw: Callable[[Console], None]) -> str:
        width, height = self._size(self._prompt.app.output)
        file = io.StringIO()
        draw(Console(file=file, force_terminal=True, width=width, height=height, highlight=False))
        return file.getvalue()

    @staticmethod
    def _size(output: Output) -> tuple[int, int]:
        size = output.get_size()
        return max(size.columns, 1), max(size.rows, 1)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif is_running(self._view):
                self._work.create_task(self._cancel())

        return keys


class _Segments:
    """Segments that are drawn already."""

    def __init__(self, segments: object) -> None:
        self._segments = segments

    def __rich_console__(self, _console: object, _options: object) -> object:
        return self._segments


def first_of(errors: BaseExceptionGroup[SagentryError]) -> SagentryError:
    """Returns the first error of a group."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
