"""What of an agent's view is printed for good, and what is still in motion below it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.cli.rows import Shown, as_renderable, is_settled, preview, repeats_card, shown
from sagentry.cli.safe_text import safe_line, safe_text
from sagentry.client import AgentView, GrowingMessage, GrowingPart, RowsRead

MOST_LIVE_CHARACTERS = 8000
"""Of a text in motion only the end is shown: a screen has no room for more."""


class Scroll:
    """Follows a view. Rows are printed in order, each once, as soon as nothing about them will change."""

    def __init__(self) -> None:
        self._position = 0
        self._cards: set[str] = set()
        # Whole, but without a row yet: the store may be away for long, and the text must not vanish.
        self._unsaved: dict[str, message_pb2.Message] = {}

    def see(self, item: object) -> None:
        """Takes notice of what a follower yields."""
        match item:
            case pb.Event():
                if item.HasField("message_completed"):
                    message = item.message_completed.message
                    if message.role == message_pb2.ROLE_ASSISTANT:
                        self._unsaved[message.message_id] = message
                elif item.HasField("display_message_saved"):
                    saved = item.display_message_saved.display_message
                    self._unsaved.pop(saved.message_id, None)
            case RowsRead():
                for row in item.rows:
                    self._unsaved.pop(row.message_id, None)

    def skip(self, view: AgentView, most: int) -> int:
        """Leaves out all but the last rows; returns how many were left out."""
        rows = view.transcript()
        if len(rows) <= most:
            return 0
        self._position = rows[-most - 1].position
        self._cards = {row.content.tool_call.call_id for row in rows}
        return len(rows) - most

    def settled(self, view: AgentView) -> Iterator[Shown]:
        """Yields the rows that can be printed now."""
        for row in self._rest(view):
            if is_running(view) and not is_settled(row):
                return
            self._position = row.position
            one = self._shown(row)
            if one is not None:
                yield one

    def live(self, view: AgentView) -> RenderableType | None:
        """Returns what is in motion; None if nothing is."""
        parts: list[RenderableType] = []
        parts += [
            as_renderable(one) for row in self._rest(view) if (one := self._shown(row)) is not None
        ]
        for message in self._unsaved.values():
            if message.message_id not in view.growing:
                parts += _growing(_as_growing(message))
        for growing in view.growing.values():
            parts += _growing(growing)
        return Group(*parts) if parts else None

    def _rest(self, view: AgentView) -> list[display_pb2.DisplayMessage]:
        rest = [row for row in view.rows.values() if row.position > self._position]
        return sorted(rest, key=lambda row: row.position)

    def _shown(self, row: display_pb2.DisplayMessage) -> Shown | None:
        if repeats_card(row, self._cards):
            return None
        if row.content.HasField("tool_call"):
            self._cards.add(row.content.tool_call.call_id)
        return shown(row)


def is_running(view: AgentView) -> bool:
    """Whether a run is under way."""
    return view.agent.live and view.agent.status == agent_pb2.AGENT_STATUS_RUNNING


def _as_growing(message: message_pb2.Message) -> GrowingMessage:
    return GrowingMessage.of(message)


def _growing(message: GrowingMessage) -> list[RenderableType]:
    return [one for part in message.parts if (one := _growing_part(part)) is not None]


def _growing_part(part: GrowingPart) -> RenderableType | None:
    text = part.text
    if part.kind == pb.PART_KIND_TOOL_CALL:
        name = safe_line(part.name) or "…"
        arguments = preview(safe_text(text[:MOST_LIVE_CHARACTERS]))
        return Text.assemble(("○ ", "dim"), (name, "bold"), (f"({arguments}", "dim"))
    if not text:
        return None
    if part.kind == pb.PART_KIND_THINKING:
        return Text(safe_text(text[-MOST_LIVE_CHARACTERS:]), "dim italic")
    if len(text) > MOST_LIVE_CHARACTERS:
        # Rendering all of a long text anew for each piece would cost its square.
        return Text("…" + safe_text(text[-MOST_LIVE_CHARACTERS:]))
    return Markdown(safe_text(text), hyperlinks=False)
