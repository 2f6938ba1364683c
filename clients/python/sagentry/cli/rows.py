"""Rows of a transcript as people read them: plain text, Markdown, or on a terminal."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.cli.safe_text import safe_line, safe_text

LONGEST_PREVIEW = 300
"""Characters of a tool's arguments or result that a card shows."""


class Kind(enum.Enum):
    """What a row is to a reader."""

    TEXT = enum.auto()
    THINKING = enum.auto()
    TOOL = enum.auto()
    RESULT = enum.auto()
    NOTE = enum.auto()
    ERROR = enum.auto()


@dataclass(frozen=True, slots=True)
class Shown:
    """A row, in words that are safe to print.

    Attributes:
        kind: What it is.
        speaker: Whose it is.
        text: What it says; for a tool call what was asked of the tool.
        answer: What the tool answered.
        status: Status of a tool call as a word, or empty.
        mark: Why the message ended early, or empty.
    """

    kind: Kind
    speaker: str
    text: str
    answer: str = ""
    status: str = ""
    mark: str = ""


_SPEAKERS = {
    display_pb2.DISPLAY_MESSAGE_TYPE_USER: "You",
    display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT: "Agent",
    display_pb2.DISPLAY_MESSAGE_TYPE_TOOL: "Tool",
}

_MARKS = {
    message_pb2.MESSAGE_STATUS_LENGTH: "cut at the length limit",
    message_pb2.MESSAGE_STATUS_CANCELLED: "cancelled",
    message_pb2.MESSAGE_STATUS_CONTENT_FILTERED: "cut by the content filter",
    message_pb2.MESSAGE_STATUS_STREAM_ERROR: "cut: the model or the server died",
}

_STATUSES = {
    display_pb2.TOOL_STATUS_PENDING: "pending",
    display_pb2.TOOL_STATUS_EXECUTING: "running",
    display_pb2.TOOL_STATUS_INTERRUPTED: "waits for people",
    display_pb2.TOOL_STATUS_COMPLETED: "done",
    display_pb2.TOOL_STATUS_FAILED: "failed",
    display_pb2.TOOL_STATUS_CANCELLED: "cancelled",
}

_UNFINISHED = frozenset({"pending", "running", "waits for people"})

_CARDS = {
    "pending": ("○", "dim"),
    "running": ("◐", "yellow"),
    "waits for people": ("◇", "yellow"),
    "done": ("●", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("⊘", "dim"),
}

_BOXES = {
    display_pb2.TODO_STATUS_PENDING: "[ ]",
    display_pb2.TODO_STATUS_IN_PROGRESS: "[~]",
    display_pb2.TODO_STATUS_COMPLETED: "[x]",
    display_pb2.TODO_STATUS_CANCELLED: "[-]",
}


def shown(row: display_pb2.DisplayMessage) -> Shown:
    """Returns what a row says to people."""
    content = row.content
    speaker = _SPEAKERS.get(row.type, "System")
    mark = _MARKS.get(content.stop_reason, "") if content.HasField("stop_reason") else ""
    match content.WhichOneof("body"):
        case "text":
            return Shown(Kind.TEXT, speaker, safe_text(content.text.text), mark=mark)
        case "thinking":
            return Shown(Kind.THINKING, speaker, safe_text(content.thinking.text), mark=mark)
        case "tool_call":
            return _tool_shown(row, mark)
        case "tool_result":
            result = content.tool_result
            kind = Kind.ERROR if result.is_error else Kind.RESULT
            return Shown(kind, safe_line(result.name), safe_text(result.text), mark=mark)
        case "error":
            return Shown(Kind.ERROR, "Error", safe_text(content.error.text), mark=mark)
        case _:
            # The note says itself why it is there.
            return Shown(Kind.NOTE, speaker, _note(content))


def _tool_shown(row: display_pb2.DisplayMessage, mark: str) -> Shown:
    call, info = row.content.tool_call, row.tool_info
    name = safe_line(info.display_text or call.display_text or call.name)
    arguments = safe_line(info.arguments_json or call.arguments_json)
    status = _STATUSES.get(row.tool_status, "running")
    return Shown(
        Kind.TOOL,
        name,
        "" if arguments == "{}" else arguments,
        safe_text(info.error or info.result),
        status,
        mark,
    )


def _note(content: display_pb2.DisplayContent) -> str:
    match content.WhichOneof("body"):
        case "notification":
            text = content.notification.text
        case "image":
            text = f"[image {content.image.name or content.image.media_type}]"
        case "file_reference":
            text = f"[file {content.file_reference.name or content.file_reference.path}]"
        case "structured_data":
            text = f"[{content.structured_data.format}] {content.structured_data.data.json}"
        case "todo_snapshot":
            todos = content.todo_snapshot.todos
            text = "\n".join(f"{_BOXES.get(todo.status, '[?]')} {todo.content}" for todo in todos)
        case "custom":
            text = f"[{content.custom.type}]"
        case _:
            text = "[something that this version cannot show]"
    return safe_text(text)


def is_settled(row: display_pb2.DisplayMessage) -> bool:
    """Whether nothing is expected to change about a row."""
    is_call = row.content.HasField("tool_call")
    return not is_call or _STATUSES.get(row.tool_status, "running") not in _UNFINISHED


def repeats_card(row: display_pb2.DisplayMessage, calls: set[str]) -> bool:
    """Whether a row is the result of a call whose card shows it already.

    Args:
        row: The row.
        calls: call_ids of the cards that have been shown.
    """
    return row.content.HasField("tool_result") and row.content.tool_result.call_id in calls


def preview(text: str) -> str:
    """Returns the beginning of a text, on one line."""
    line = " ".join(text[: 4 * LONGEST_PREVIEW].split())
    return line if len(line) <= LONGEST_PREVIEW else line[: LONGEST_PREVIEW - 1] + "…"


def as_text(one: Shown) -> str:
    """Returns a row as plain text."""
    mark = f"\n  ({one.mark})" if one.mark else ""
    match one.kind:
        case Kind.TEXT:
            return f"{one.speaker}: {one.text}{mark}"
        case Kind.THINKING:
            return f"{one.speaker} (thinking): {one.text}{mark}"
        case Kind.TOOL:
            answer = f"\n  {one.answer}" if one.answer else ""
            return f"Tool {one.speaker}({one.text}): {one.status}{answer}{mark}"
        case Kind.RESULT:
            return f"Result of {one.speaker}: {one.text}{mark}"
        case Kind.ERROR:
            return f"{one.speaker}: {one.text}{mark}"
        case Kind.NOTE:
            return f"— {one.text}{mark}"


def as_markdown(one: Shown) -> str:
    """Returns a row as Markdown. Text of the model is Markdown already and stays as it is."""
    mark = f"\n\n*({one.mark})*" if one.mark else ""
    match one.kind:
        case Kind.TEXT:
            return f"**{one.speaker}:**\n\n{one.text}{mark}"
        case Kind.THINKING:
            return f"{_quoted(f'*thinking:* {one.text}')}{mark}"
        case Kind.TOOL:
            answer = f"\n\n{_fenced(one.answer)}" if one.answer else ""
            call = _code(f"{one.speaker}({one.text})")
            return f"**Tool** {call} — {one.status}{answer}{mark}"
        case Kind.RESULT:
            return f"**Result** of {_code(one.speaker)}\n\n{_fenced(one.text)}{mark}"
        case Kind.ERROR:
            return f"**Error:** {one.text}{mark}"
        case Kind.NOTE:
            return f"{_quoted(one.text)}{mark}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _fence(text: str, shortest: int) -> str:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return "`" * max(shortest, longest + 1)


def _fenced(text: str) -> str:
    fence = _fence(text, 3)
    return f"{fence}\n{text}\n{fence}"


def _code(text: str) -> str:
    fence = _fence(text, 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def as_renderable(one: Shown) -> RenderableType:
    """Returns a row as it looks on a terminal."""
    parts: list[RenderableType] = []
    match one.kind:
        case Kind.TEXT if one.speaker == "You":
            parts += [Text(), Text(f"> {one.text}", "bold cyan")]
        case Kind.TEXT:
            parts.append(Markdown(one.text, hyperlinks=False))
        case Kind.THINKING:
            parts.append(Text(one.text, "dim italic"))
        case Kind.TOOL:
            parts.append(card(one))
        case Kind.RESULT:
            parts.append(Text(f"{one.speaker} → {preview(one.text)}", "green"))
        case Kind.ERROR:
            parts.append(Text(f"{one.speaker}: {one.text}", "red"))
        case Kind.NOTE:
            parts.append(Text(one.text, "dim"))
    if one.mark:
        parts.append(Text(f"⚠ {one.mark}", "yellow"))
    return Group(*parts)


def card(one: Shown) -> RenderableType:
    """Returns the card of a tool call: its life in one line, its answer in another."""
    icon, style = _CARDS[one.status]
    head = Text.assemble(
        (f"{icon} ", style), (one.speaker, "bold"), f"({preview(one.text)}) ", (one.status, style)
    )
    if not one.answer:
        return head
    style = "red" if one.status == "failed" else "dim"
    return Group(head, Padding(Text(preview(one.answer), style), (0, 0, 0, 2)))
