"""The model view: the conversation as a strict provider accepts it, made anew for each model call.

The state keeps what happened, cut answers and unanswered calls included. No provider takes that, so
this is the one place that makes a valid history of any state. It never adds meaning: what it puts in
where a provider demands something is worded so that the model cannot take it for the user's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sagentry.server.domain.messages import (
    MediaPart,
    Message,
    MessageStatus,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)

OPENING = "(The conversation begins.)"
"""Stands for the user where a conversation would begin with the assistant or with nothing."""

CONTINUATION = "(There is no new message. Please go on.)"
"""Stands for the user where a run begins behind an answer of the assistant."""

NO_RESULT = "This call has no result. Whether it was run, and what came of it, is unknown."
"""Result of a call that has none: leaving the call out would tempt the model to do it twice."""

NO_OUTPUT = "(no output)"
"""Text of a result that is empty."""

MALFORMED_ARGUMENTS = "malformed_arguments"
"""Key under which the model sees arguments it wrote that are not a JSON object."""


class ModelView:
    """Makes model views of one growing conversation.

    What a message becomes is kept as long as the state holds the very same message, so a call costs the
    new messages and one walk over references, however long the conversation is.
    """

    def __init__(self) -> None:
        """Starts with nothing kept."""
        self._kept: dict[int, tuple[Message, Message | None]] = {}

    def build(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Returns the view of the messages: never empty, and valid for the strict check."""
        kept: dict[int, tuple[Message, Message | None]] = {}
        for message in messages:
            entry = self._kept.get(id(message))
            # The source is held beside its result, so its id cannot be that of another message.
            if entry is None or entry[0] is not message:
                entry = (message, _cleaned(message))
            kept[id(message)] = entry
        self._kept = kept
        results = {
            result.call_id: result
            for _, clean in kept.values()
            if clean is not None and clean.role is Role.TOOL
            for result in clean.tool_results()
        }
        turns = [clean for _, clean in kept.values() if clean is not None]
        return tuple(_framed(_with_results(_joined(turns), results)))


def model_view(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the view of the messages once; a conversation that goes on keeps a `ModelView`."""
    return ModelView().build(messages)


def _cleaned(message: Message) -> Message | None:
    """Returns what a message is for the model, or None when nothing of it remains."""
    parts = [clean for part in message.parts if (clean := _clean_part(part, message)) is not None]
    while parts and isinstance(parts[-1], ThinkingPart):
        # Providers refuse an answer that ends with thinking: it was cut before it said anything.
        parts.pop()
    if not parts:
        return None
    role = Role.USER if message.role is Role.SYSTEM else message.role
    if role is message.role and _same(parts, message.parts):
        return message
    return replace(message, role=role, parts=tuple(parts))


def _same(parts: Sequence[Part], others: Sequence[Part]) -> bool:
    return len(parts) == len(others) and all(a is b for a, b in zip(parts, others, strict=True))


def _clean_part(part: Part, message: Message) -> Part | None:
    match part:
        case TextPart():
            return part if message.role is not Role.TOOL and part.text.strip() else None
        case ThinkingPart():
            return part if message.role is Role.ASSISTANT and part.signature else None
        case ToolCall():
            return _clean_call(part) if message.role is Role.ASSISTANT else None
        case ToolResult():
            return _clean_result(part) if message.role is Role.TOOL else None
        case MediaPart():
            return part if message.role is not Role.TOOL and _has_content(part) else None
        case OpaquePart(document=document):
            has_content = bool(document.json or document.data)
            return part if message.role is not Role.TOOL and has_content else None


def _has_content(part: TextPart | MediaPart) -> bool:
    if isinstance(part, TextPart):
        return bool(part.text.strip())
    return bool(part.url) != bool(part.data)


def _clean_call(call: ToolCall) -> ToolCall | None:
    if call.status is not ToolCallStatus.COMPLETE or not call.name or not call.call_id:
        return None
    text = call.arguments_json
    if not text.strip():
        return replace(call, arguments_json="{}")
    try:
        if isinstance(json.loads(text), dict):
            return call
    except (ValueError, RecursionError):
        pass
    return replace(call, arguments_json=json.dumps({MALFORMED_ARGUMENTS: text}))


def _clean_result(result: ToolResult) -> ToolResult:
    parts = tuple(part for part in result.parts if _has_content(part))
    if len(parts) == len(result.parts) and parts:
        return result
    return replace(result, parts=parts or (TextPart(NO_OUTPUT),))


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Joins neighbours of one role; results are put in later, behind their calls."""
    run: list[Message] = []
    for message in messages:
        if message.role is Role.TOOL:
            continue
        # A message with calls ends its turn: results come between it and whatever follows.
        if run and (run[-1].role is not message.role or run[-1].tool_calls()):
            yield _join(run)
            run = []
        run.append(message)
    if run:
        yield _join(run)


def _join(run: Sequence[Message]) -> Message:
    if len(run) == 1:
        return run[0]
    parts = tuple(part for message in run for part in message.parts)
    return replace(run[-1], message_id=run[0].message_id, parts=parts)


def _with_results(messages: Iterator[Message], results: dict[str, ToolResult]) -> Iterator[Message]:
    for message in messages:
        yield message
        calls = message.tool_calls()
        if calls:
            yield Message(
                message_id=f"{message.message_id}-results",
                role=Role.TOOL,
                parts=tuple(_result_of(call, results) for call in calls),
                create_time=message.create_time,
                run_id=message.run_id,
            )


def _result_of(call: ToolCall, results: dict[str, ToolResult]) -> ToolResult:
    found = results.get(call.call_id)
    if found is None:
        return ToolResult(call.call_id, call.name, (TextPart(NO_RESULT),), is_error=True)
    return found if found.name == call.name else replace(found, name=call.name)


def _framed(messages: Iterator[Message]) -> Iterator[Message]:
    """Puts in the user where a provider demands one: at the beginning and at the end."""
    last: Message | None = None
    for message in messages:
        if last is None and message.role is not Role.USER:
            yield _stand_in(message, OPENING)
        yield message
        last = message
    if last is None:
        yield _stand_in(None, OPENING)
    elif last.role is Role.ASSISTANT:
        yield _stand_in(last, CONTINUATION)


def _stand_in(beside: Message | None, text: str) -> Message:
    return Message(
        message_id="" if beside is None else f"{beside.message_id}-stand-in",
        role=Role.USER,
        parts=(TextPart(text),),
        create_time=datetime.fromtimestamp(0, UTC) if beside is None else beside.create_time,
        status=MessageStatus.COMPLETE,
    )
