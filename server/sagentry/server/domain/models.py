"""What a model is asked and how it answers, whatever provider stands behind it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta

from sagentry.server.domain.messages import Document, Message, TokenUsage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it.

    Attributes:
        name: Its name.
        description: What it does, for the model.
        parameters_json: JSON Schema of its arguments, an object schema, as JSON text.
    """

    name: str
    description: str
    parameters_json: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call.

    Attributes:
        system_prompt: Instructions; empty for none.
        messages: The model view of the conversation: valid for strict providers.
        tools: The tools on offer.
        call_number: Number of the model call inside its run, from 1.
    """

    system_prompt: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    call_number: int


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of text. Not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingChunk:
    """A piece of thinking. Not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class SignatureChunk:
    """The signature of the thinking so far, whole."""

    signature: bytes


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A piece of a tool call.

    Attributes:
        index: Which call of the message, as the provider counts; pieces with one index are one call.
        provider_call_id: The provider's id, in the first piece that has it.
        name: The tool's name, in the first piece that has it.
        arguments: The next piece of the arguments' JSON text.
    """

    index: int
    provider_call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class OpaqueChunk:
    """A part that only its provider understands, whole: kept verbatim and given back to it."""

    document: Document


@dataclass(frozen=True, slots=True)
class UsageChunk:
    """Tokens of the call so far: a total, not an increment; the last one counts."""

    usage: TokenUsage


class StopKind(enum.Enum):
    """Why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True)
class EndChunk:
    """The answer is whole. A stream that ends without one was cut."""

    stop: StopKind


class ModelCallError(Exception):
    """A model call failed, before or after it began to answer.

    Attributes:
        reason: A word for programs: MODEL_OVERLOADED, MODEL_RATE_LIMITED, MODEL_UNAVAILABLE,
            MODEL_AUTHENTICATION, MODEL_REQUEST_INVALID, MODEL_STREAM_CUT, MODEL_FAILED, SCRIPT_UNMATCHED,
            HISTORY_INVALID.
        retryable: Whether the same call might succeed later.
        retry_after: When the provider said so.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        """Words the failure for people: no credentials, no addresses, no content."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A call failed before it had said anything, and goes on: again, or with another model.

    Attributes:
        model: The model that failed.
        attempt: Which attempt of this call it was, from 1.
        error: Why.
    """

    model: str
    attempt: int
    error: ModelCallError


CONTENT_CHUNKS = (TextChunk, ThinkingChunk, SignatureChunk, ToolCallChunk, OpaqueChunk)
"""Chunks that are part of the message."""

ModelChunk = (
    TextChunk
    | ThinkingChunk
    | SignatureChunk
    | ToolCallChunk
    | OpaqueChunk
    | UsageChunk
    | EndChunk
    | AttemptFailed
)
