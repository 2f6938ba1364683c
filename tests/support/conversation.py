"""Short ways to write conversations and to run models in tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from sagentry.server.domain.messages import (
    Message,
    MessageStatus,
    Part,
    Role,
    TextPart,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.domain.models import (
    ModelCallError,
    ModelChunk,
    ModelRequest,
    SignatureChunk,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
)
from sagentry.server.model_ports import ChatModel

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)

_ids = itertools.count()


def message(
    role: Role, *parts: Part | str, status: MessageStatus = MessageStatus.COMPLETE
) -> Message:
    made = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return Message(f"msg-{next(_ids)}", role, made, NOON, status)


def user(*parts: Part | str) -> Message:
    return message(Role.USER, *parts)


def assistant(*parts: Part | str, status: MessageStatus = MessageStatus.COMPLETE) -> Message:
    return message(Role.ASSISTANT, *parts, status=status)


def results(*parts: ToolResult) -> Message:
    return message(Role.TOOL, *parts)


def call(
    call_id: str,
    name: str = "look_up",
    arguments: object = None,
    *,
    text: str | None = None,
    status: ToolCallStatus = ToolCallStatus.COMPLETE,
    provider_call_id: str = "",
) -> ToolCall:
    arguments_json = json.dumps(arguments or {}) if text is None else text
    return ToolCall(call_id, name, arguments_json, provider_call_id, status=status)


def result(call_id: str, text: str = "done", name: str = "look_up") -> ToolResult:
    return ToolResult(call_id, name, (TextPart(text),))


def request(
    *messages: Message,
    tools: Sequence[str] = (),
    call_number: int = 1,
    system_prompt: str = "",
) -> ModelRequest:
    specs = tuple(ToolSpec(name, f"Does {name}.", '{"type": "object"}') for name in tools)
    return ModelRequest(system_prompt, messages or (user("hello"),), specs, call_number)


async def answer(model: ChatModel, asked: ModelRequest) -> list[ModelChunk]:
    """Returns all chunks of an answer that does not fail."""
    return [chunk async for chunk in model.stream(asked)]


async def failing_answer(
    model: ChatModel, asked: ModelRequest
) -> tuple[list[ModelChunk], ModelCallError]:
    """Returns the chunks before an answer's failure, and the failure."""
    chunks: list[ModelChunk] = []
    try:
        async for chunk in model.stream(asked):
            chunks.append(chunk)  # noqa: PERF401  (what came before the failure counts)
    except ModelCallError as error:
        return chunks, error
    message_text = "the call was expected to fail"
    raise AssertionError(message_text)


def text_of(chunks: Sequence[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def thinking_of(chunks: Sequence[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, ThinkingChunk))


def signatures_of(chunks: Sequence[ModelChunk]) -> list[bytes]:
    return [chunk.signature for chunk in chunks if isinstance(chunk, SignatureChunk)]


def calls_of(chunks: Sequence[ModelChunk]) -> dict[int, tuple[str, str, str]]:
    """Returns (provider_call_id, name, arguments) of each call by its index."""
    calls: dict[int, tuple[str, str, str]] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolCallChunk):
            known = calls.get(chunk.index, ("", "", ""))
            calls[chunk.index] = (
                known[0] or chunk.provider_call_id,
                known[1] or chunk.name,
                known[2] + chunk.arguments,
            )
    return calls
