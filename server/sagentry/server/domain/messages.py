"""Messages that a model reads and writes. Meanings and limits: the contract's `message.proto`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime


class Role(enum.Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageStatus(enum.Enum):
    """How a message ended."""

    COMPLETE = "complete"
    LENGTH = "length"
    CANCELLED = "cancelled"
    CONTENT_FILTERED = "content_filtered"
    STREAM_ERROR = "stream_error"


class ToolCallStatus(enum.Enum):
    """Whether the model finished writing a tool call."""

    INCOMPLETE = "incomplete"
    COMPLETE = "complete"


class MediaKind(enum.Enum):
    """Which kind of media a part holds."""

    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Document:
    """Content that is kept verbatim: exactly one of `json` and `data` is set."""

    media_type: str
    json: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text that is shown to people."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """A model's thinking; without a signature it is not given back to the model."""

    text: str
    signature: bytes = b""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool. `call_id` is ours, `provider_call_id` the provider's."""

    call_id: str
    name: str
    arguments_json: str
    provider_call_id: str = ""
    display_text: str = ""
    status: ToolCallStatus = ToolCallStatus.COMPLETE


@dataclass(frozen=True, slots=True)
class MediaPart:
    """Content that is not text: exactly one of `url` and `data` is set."""

    kind: MediaKind
    media_type: str
    name: str = ""
    url: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer of a tool to one call; `item_id` names the open interrupt item it stands for."""

    call_id: str
    name: str
    parts: tuple[TextPart | MediaPart, ...]
    is_error: bool = False
    item_id: str = ""

    def text(self) -> str:
        """Returns the text parts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class OpaquePart:
    """A provider's own part, kept verbatim and given back to that provider only."""

    document: Document


Part = TextPart | ThinkingPart | ToolCall | ToolResult | MediaPart | OpaquePart


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one or more model calls; None means not reported, which differs from 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    thinking_tokens: int | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Adds two usages; what neither reported stays unreported."""
        return TokenUsage(
            *(
                mine if theirs is None else theirs if mine is None else mine + theirs
                for mine, theirs in zip(self.counts(), other.counts(), strict=True)
            )
        )

    def counts(self) -> tuple[int | None, ...]:
        """Returns the counts in the order of the fields."""
        return (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.thinking_tokens,
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, as the model sees it."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]
    create_time: datetime
    status: MessageStatus = MessageStatus.COMPLETE
    usage: TokenUsage | None = None
    metadata: Document | None = None
    run_id: str = ""

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Returns the tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    def tool_results(self) -> tuple[ToolResult, ...]:
        """Returns the tool results, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    def text(self) -> str:
        """Returns the text parts, joined by nothing: deltas of one part were joined before."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))
