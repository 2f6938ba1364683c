"""What of a message people are shown: message to display items. Source: the original's behaviour, §6.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sagentry.server.domain.display import (
    Content,
    DisplayItem,
    DisplayMessageType,
    ErrorContent,
    FileReference,
    MediaContent,
    TextContent,
    TextKind,
    ToolCallContent,
    ToolResultContent,
    ToolStatus,
)
from sagentry.server.domain.messages import (
    MediaKind,
    MediaPart,
    Message,
    MessageStatus,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)

_TYPE_OF_ROLE = {
    Role.USER: DisplayMessageType.USER,
    Role.ASSISTANT: DisplayMessageType.ASSISTANT,
    Role.TOOL: DisplayMessageType.TOOL,
    Role.SYSTEM: DisplayMessageType.SYSTEM,
}

Labels = Callable[[str], str]
"""Gives the label for people of a tool by its name."""


def humanise(tool_name: str) -> str:
    """Makes a label from a tool's name: `search_web` becomes `Search web`."""
    words = tool_name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:] if words else tool_name


def display_items(message: Message) -> tuple[DisplayItem, ...]:
    """Returns the items of a message in its parts' order; none when nothing of it is for people.

    Calls come after text and thinking, results after calls, as readers expect them. The last item of a
    message that ended early says why.
    """
    items = [
        DisplayItem(
            sequence=0,
            type=_TYPE_OF_ROLE[message.role],
            content=content,
            tool_status=ToolStatus.PENDING if isinstance(content, ToolCallContent) else None,
        )
        for content in _contents(message.parts)
    ]
    if items and message.status is not MessageStatus.COMPLETE:
        items[-1] = replace(items[-1], stop_reason=message.status)
    return tuple(replace(item, sequence=index) for index, item in enumerate(items))


def _contents(parts: tuple[Part, ...]) -> list[Content]:
    spoken: list[Content] = []
    calls: list[Content] = []
    results: list[Content] = []
    for part in parts:
        match part:
            case TextPart(text=text) if text:
                spoken.append(TextContent(TextKind.TEXT, text))
            case ThinkingPart(text=text) if text:
                spoken.append(TextContent(TextKind.THINKING, text))
            case MediaPart(kind=MediaKind.IMAGE):
                spoken.append(MediaContent(part))
            case MediaPart(kind=MediaKind.FILE, url=str() as path):
                # Readers get the address. A file that came by value is nowhere for them to fetch.
                spoken.append(FileReference(path, part.name, part.media_type))
            case ToolCall():
                calls.append(call_content(part))
            case ToolResult():
                results.append(result_content(part))
            case _:
                pass
    return [*spoken, *calls, *results]


def call_content(call: ToolCall) -> ToolCallContent:
    """Shows a tool call."""
    return ToolCallContent(
        call_id=call.call_id,
        name=call.name,
        arguments_json=call.arguments_json,
        display_text=call.display_text or humanise(call.name),
    )


def result_content(result: ToolResult) -> ToolResultContent:
    """Shows a tool's answer."""
    return ToolResultContent(
        call_id=result.call_id,
        name=result.name,
        text=result.text(),
        is_error=result.is_error,
        is_interrupt=bool(result.item_id),
    )


def notice(text: str, stop_reason: MessageStatus | None = None) -> DisplayItem:
    """Makes a note of the system."""
    return DisplayItem(
        sequence=0,
        type=DisplayMessageType.SYSTEM,
        content=TextContent(TextKind.NOTIFICATION, text),
        stop_reason=stop_reason,
    )


def failure_notice(text: str, error_type: str) -> DisplayItem:
    """Makes a failure's row."""
    return DisplayItem(
        sequence=0, type=DisplayMessageType.SYSTEM, content=ErrorContent(text, error_type)
    )
