"""Rows of the transcript. Meanings: the contract's `display.proto`."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sagentry.server.domain.messages import Document, MediaPart, MessageStatus


class DisplayMessageType(enum.Enum):
    """Whose row it is."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class ToolStatus(enum.Enum):
    """Life of a tool call, as people see it."""

    PENDING = "pending"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class TodoStatus(enum.Enum):
    """How far a todo item is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Todo:
    """One item of an agent's todo list."""

    id: int
    content: str
    status: TodoStatus


class TextKind(enum.Enum):
    """What a piece of displayed text is."""

    TEXT = "text"
    THINKING = "thinking"
    NOTIFICATION = "notification"


@dataclass(frozen=True, slots=True)
class TextContent:
    """Text, thinking or a note of the system."""

    kind: TextKind
    text: str


@dataclass(frozen=True, slots=True)
class MediaContent:
    """A picture."""

    media: MediaPart


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that exists elsewhere."""

    path: str
    name: str
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class StructuredData:
    """Data in a named format."""

    format: str
    data: Document


@dataclass(frozen=True, slots=True)
class ErrorContent:
    """A failure, worded for people."""

    text: str
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallContent:
    """A tool call as people see it."""

    call_id: str
    name: str
    arguments_json: str
    display_text: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultContent:
    """A tool's answer as people see it."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    is_interrupt: bool = False


@dataclass(frozen=True, slots=True)
class TodoSnapshot:
    """The todo list at one moment."""

    todos: tuple[Todo, ...]


@dataclass(frozen=True, slots=True)
class CustomContent:
    """An application's own kind."""

    type: str
    document: Document


@dataclass(frozen=True, slots=True)
class OpaqueContent:
    """Content of a kind that this server does not know: passed on byte for byte.

    Attributes:
        encoded: The encoded `DisplayContent` of the contract.
    """

    encoded: bytes


Content = (
    TextContent
    | MediaContent
    | FileReference
    | StructuredData
    | ErrorContent
    | ToolCallContent
    | ToolResultContent
    | TodoSnapshot
    | CustomContent
    | OpaqueContent
)


@dataclass(frozen=True, slots=True)
class DisplayItem:
    """One thing to show, proposed by the server."""

    sequence: int
    type: DisplayMessageType
    content: Content
    tool_status: ToolStatus | None = None
    metadata: Document | None = None
    stop_reason: MessageStatus | None = None
    stop_details: Document | None = None


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What is known of a tool call; None leaves the stored value."""

    name: str | None = None
    display_text: str | None = None
    arguments_json: str | None = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DisplayMessage:
    """A row as its store saved it. The server reads a few facts and passes the rest on.

    Attributes:
        display_message_id: Identity of the row.
        position: Order of insertion in the conversation, from 1.
        change: The conversation's change counter at the row's last write.
        message_id: The message it is a part of.
        encoded: The encoded `DisplayMessage` of the contract, byte for byte as the store sent it.
    """

    display_message_id: str
    position: int
    change: int
    message_id: str
    encoded: bytes


@dataclass(frozen=True, slots=True)
class DisplayPage:
    """A page of rows in the requested order."""

    rows: tuple[DisplayMessage, ...]
    has_more: bool


class ListOrder(enum.Enum):
    """Orders of a list of rows."""

    POSITION_ASCENDING = "position_ascending"
    POSITION_DESCENDING = "position_descending"
    CHANGE_ASCENDING = "change_ascending"


@dataclass(frozen=True, slots=True)
class ConversationCounters:
    """Newest position and change of a conversation; 0 for none."""

    last_position: int = 0
    last_change: int = 0
