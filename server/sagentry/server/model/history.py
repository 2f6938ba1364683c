"""The strict history check: what the strictest providers demand of a conversation.

Real providers answer a broken history with a refusal, in production, after the user has waited. The
scripted model refuses the same in every test. Knows nothing of langchain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sagentry.server.domain.messages import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.domain.models import ModelCallError

_ALLOWED: dict[Role, tuple[type, ...]] = {
    Role.SYSTEM: (),
    Role.USER: (TextPart, MediaPart, OpaquePart),
    Role.ASSISTANT: (TextPart, ThinkingPart, ToolCall, MediaPart, OpaquePart),
    Role.TOOL: (ToolResult,),
}


def check_history(messages: Sequence[Message]) -> None:
    """Refuses a history that a strict provider would refuse.

    Raises:
        ModelCallError: HISTORY_INVALID, with the place and the rule in words and no content.
    """
    problem = history_problem(messages)
    if problem is not None:
        raise ModelCallError("HISTORY_INVALID", f"the history is not valid: {problem}")


def history_problem(messages: Sequence[Message]) -> str | None:
    """Returns the first rule that the history breaks, or None when it is valid.

    The rules: it begins with a user message and ends with a user or tool message; user and assistant
    alternate; a message with calls is followed by one tool message with exactly their results, in
    call order, and nothing else is; every message has parts and every part has content; thinking is
    signed and never the last part; arguments are JSON objects; call ids are unique.
    """
    if not messages:
        return "there are no messages"
    if messages[0].role is not Role.USER:
        return f"messages[0] is of role {messages[0].role.value}, the first must be of role user"
    if messages[-1].role is Role.ASSISTANT:
        return f"messages[{len(messages) - 1}] is the last and of role assistant"
    seen_calls: set[str] = set()
    before: Message | None = None
    for index, message in enumerate(messages):
        problem = _message_problem(message, seen_calls) or _order_problem(before, message)
        if problem is not None:
            return f"messages[{index}]{problem}"
        before = message
    if before is not None and before.tool_calls():
        return "the last calls have no results"
    return None


def _order_problem(before: Message | None, message: Message) -> str | None:
    if before is None:
        return None
    calls = before.tool_calls()
    if message.role is Role.TOOL:
        wanted = [(call.call_id, call.name) for call in calls]
        got = [(result.call_id, result.name) for result in message.tool_results()]
        if wanted != got:
            return (
                f" has results for {_names(got)}, but the message before it calls {_names(wanted)}"
            )
        return None
    if calls:
        open_calls = _names([(call.call_id, call.name) for call in calls])
        return f" is of role {message.role.value}, but {open_calls} have no results"
    if before.role is message.role:
        return f" is of role {message.role.value} like the one before it"
    return None


def _names(calls: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({call_id})" for call_id, name in calls) or "nothing"


def _message_problem(message: Message, seen_calls: set[str]) -> str | None:
    if message.role is Role.SYSTEM:
        return " is of role system, which belongs in the system prompt"
    if not message.parts:
        return " has no parts"
    for index, part in enumerate(message.parts):
        if not isinstance(part, _ALLOWED[message.role]):
            kind = type(part).__name__
            return f".parts[{index}] is a {kind} in a message of role {message.role.value}"
        problem = _part_problem(part) or _repetition(part, seen_calls)
        if problem is not None:
            return f".parts[{index}]{problem}"
    return " ends with thinking" if isinstance(message.parts[-1], ThinkingPart) else None


def _repetition(part: Part, seen_calls: set[str]) -> str | None:
    if not isinstance(part, ToolCall):
        return None
    if part.call_id in seen_calls:
        return f" repeats the call id {part.call_id}"
    seen_calls.add(part.call_id)
    return None


def _part_problem(part: Part) -> str | None:
    match part:
        case ToolCall():
            return _call_problem(part)
        case ToolResult(parts=parts):
            problems = [_part_problem(inner) for inner in parts]
            found = next((problem for problem in problems if problem is not None), None)
            return found if parts else " is a result without parts"
        case TextPart(text=text):
            is_valid, problem = bool(text.strip()), " is text without a visible character"
        case ThinkingPart(signature=signature):
            is_valid, problem = bool(signature), " is thinking without a signature"
        case MediaPart(url=url, data=data):
            is_valid, problem = bool(url) != bool(data), " needs exactly one of url and data"
        case OpaquePart(document=document):
            is_valid, problem = bool(document.json or document.data), " is opaque and empty"
    return None if is_valid else problem


def _call_problem(call: ToolCall) -> str | None:
    if call.status is not ToolCallStatus.COMPLETE:
        return f" is the call {call.name} that the model did not finish"
    if not call.name or not call.call_id:
        return " is a call without a name or an id"
    if not is_json_object(call.arguments_json):
        return f" is the call {call.name} with arguments that are not a JSON object"
    return None


def is_json_object(text: str) -> bool:
    """Says whether the text is one JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
