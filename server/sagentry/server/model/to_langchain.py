"""Turns what the server knows of a conversation into langchain's messages and tool descriptions."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from sagentry.server.domain.messages import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from sagentry.server.domain.models import ModelCallError, ModelRequest, ToolSpec
from sagentry.server.domain.text import has_surrogate_escape, repair_object

Content = str | list[str | dict[str, Any]]
"""Content of a langchain message."""


def opaque_media_type(provider: str) -> str:
    """Returns the media type of opaque parts that are given back to this provider."""
    return f"application/vnd.sagentry.{provider}+json"


def to_langchain(request: ModelRequest, provider: str) -> list[BaseMessage]:
    """Returns the request's prompt and messages in langchain's form.

    Args:
        request: Its messages are a model view: each call has its result behind it.
        provider: Whose opaque parts are given back; those of others are left out.

    Raises:
        ModelCallError: HISTORY_INVALID, the messages cannot be told to a provider.
    """
    converted: list[BaseMessage] = []
    if request.system_prompt:
        converted.append(SystemMessage(content=request.system_prompt))
    provider_ids: dict[str, str] = {}
    for message in request.messages:
        match message.role:
            case Role.SYSTEM:
                converted.append(SystemMessage(content=_content(message, provider)))
            case Role.USER:
                converted.append(HumanMessage(content=_content(message, provider)))
            case Role.ASSISTANT:
                for call in message.tool_calls():
                    provider_ids[call.call_id] = call.provider_call_id or call.call_id
                converted.append(_assistant(message, provider))
            case Role.TOOL:
                converted.extend(_results(message, provider_ids))
    return converted


def tool_definitions(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Returns the tools in the form that every langchain adapter takes."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(tool.parameters_json),
            },
        }
        for tool in tools
    ]


def _assistant(message: Message, provider: str) -> AIMessage:
    calls: Any = [
        {
            "type": "tool_call",
            "id": call.provider_call_id or call.call_id,
            "name": call.name,
            "args": arguments_of(call),
        }
        for call in message.tool_calls()
    ]
    return AIMessage(content=_content(message, provider), tool_calls=calls)


def _results(message: Message, provider_ids: dict[str, str]) -> list[BaseMessage]:
    return [
        ToolMessage(
            content=_blocks_or_text([_block(part, "") for part in result.parts]),
            tool_call_id=provider_ids.get(result.call_id, result.call_id),
            name=result.name,
            status="error" if result.is_error else "success",
        )
        for result in message.tool_results()
    ]


def _content(message: Message, provider: str) -> Content:
    return _blocks_or_text([_block(part, provider) for part in message.parts])


def _blocks_or_text(blocks: Sequence[dict[str, Any] | None]) -> Content:
    """Returns the blocks; one of text alone as a string, the form that every adapter takes."""
    kept = [block for block in blocks if block is not None]
    if not kept:
        return ""
    if len(kept) == 1 and kept[0]["type"] == "text":
        return str(kept[0]["text"])
    return list(kept)


def _block(part: Part, provider: str) -> dict[str, Any] | None:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ThinkingPart():
            return {
                "type": "thinking",
                "thinking": part.text,
                "signature": _signature_text(part.signature),
            }
        case MediaPart():
            return _media(part)
        case OpaquePart(document=document):
            if document.media_type != opaque_media_type(provider) or document.json is None:
                return None
            block = json.loads(document.json)
            return block if isinstance(block, dict) and "type" in block else None
        case _:
            # Calls and results travel beside the content, not in it.
            return None


def _signature_text(signature: bytes) -> str:
    try:
        return signature.decode()
    except UnicodeDecodeError:
        # Every signature came from a provider as text: one that is not was never valid there.
        problem = "a signature of thinking is not text"
        raise ModelCallError("HISTORY_INVALID", problem) from None


def _media(part: MediaPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": part.kind.value}
    if part.media_type:
        block["mime_type"] = part.media_type
    if part.name:
        block["extras"] = {"filename": part.name}
    if part.url is not None:
        block["url"] = part.url
    else:
        block["base64"] = base64.b64encode(part.data or b"").decode()
    return block


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Returns the arguments as an object, numbers and nesting exact.

    Raises:
        ModelCallError: HISTORY_INVALID, they are not a JSON object.
    """
    try:
        arguments = json.loads(call.arguments_json or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        problem = f"the arguments of the call {call.name} are not a JSON object"
        raise ModelCallError("HISTORY_INVALID", problem)
    if has_surrogate_escape(call.arguments_json):
        # An escape of half a pair is legal in JSON and not in the text that a provider is sent.
        return repair_object(arguments)
    return arguments
