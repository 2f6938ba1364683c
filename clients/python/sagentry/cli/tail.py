"""The part of a screen that is in motion: the end of what grows, and a status below it."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text


class Tail:
    """Shows the last lines of something, as many as the screen has room for, and a line of status.

    Args:
        body: What is in motion; asked for each picture, not for each change.
        status: The status.
        margin: Lines of the screen's height that stay free.
    """

    def __init__(
        self,
        body: Callable[[], RenderableType | None],
        status: Callable[[], str],
        *,
        margin: int = 2,
    ) -> None:
        self._body = body
        self._status = status
        self._margin = margin

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from tail_of(self._body(), console, options, console.height - self._margin)
        yield Text(self._status(), "reverse dim", no_wrap=True, overflow="ellipsis")


def tail_of(
    body: RenderableType | None, console: Console, options: ConsoleOptions, height: int
) -> RenderResult:
    """Yields the last lines of something."""
    if body is None:
        return
    for line in console.render_lines(body, options, pad=False)[-max(1, height) :]:
        yield from line
        yield Segment.line()
