"""What people see: items that the server proposes, and rows as their store saved them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import assert_never

from sagentry.api.type.v1 import display_pb2
from sagentry.server.domain.display import (
    Content,
    CustomContent,
    DisplayItem,
    DisplayMessage,
    DisplayMessageType,
    ErrorContent,
    FileReference,
    MediaContent,
    OpaqueContent,
    StructuredData,
    TextContent,
    TextKind,
    Todo,
    TodoSnapshot,
    TodoStatus,
    ToolCallContent,
    ToolInfo,
    ToolResultContent,
    ToolStatus,
)
from sagentry.server.domain.messages import MediaKind
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.document import document_from_pb, document_to_pb, json_object_from_pb
from sagentry.server.wire.fields import EnumTable, require_id
from sagentry.server.wire.message import MESSAGE_STATUSES, media_from_pb, media_to_pb

ROW_TYPES = EnumTable(DisplayMessageType, display_pb2.DisplayMessageType, "DISPLAY_MESSAGE_TYPE_")
TOOL_STATUSES = EnumTable(ToolStatus, display_pb2.ToolStatus, "TOOL_STATUS_")
TODO_STATUSES = EnumTable(TodoStatus, display_pb2.TodoStatus, "TODO_STATUS_")


def item_to_pb(item: DisplayItem) -> display_pb2.DisplayItem:
    """Returns the item."""
    message = display_pb2.DisplayItem(
        sequence=item.sequence, type=ROW_TYPES.to_pb(item.type), content=content_to_pb(item.content)
    )
    if item.tool_status is not None:
        message.tool_status = TOOL_STATUSES.to_pb(item.tool_status)
    if item.metadata is not None:
        message.metadata.CopyFrom(document_to_pb(item.metadata))
    if item.stop_reason is not None:
        message.content.stop_reason = MESSAGE_STATUSES.to_pb(item.stop_reason)
    if item.stop_details is not None:
        message.content.stop_details.CopyFrom(document_to_pb(item.stop_details))
    return message


def item_from_pb(item: display_pb2.DisplayItem, *, field: str = "item") -> DisplayItem:
    """Returns the item; content of an unknown kind is kept as bytes.

    Raises:
        InvalidInputError: A field is missing or malformed.
    """
    if not item.HasField("content"):
        raise InvalidInputError(f"{field}.content", "is required")
    content = item.content
    place = f"{field}.content"
    metadata = stop_details = stop_reason = None
    if item.HasField("metadata"):
        metadata = json_object_from_pb(item.metadata, field=f"{field}.metadata")
    if content.HasField("stop_reason"):
        stop_reason = MESSAGE_STATUSES.require(content.stop_reason, f"{place}.stop_reason")
    if content.HasField("stop_details"):
        stop_details = json_object_from_pb(content.stop_details, field=f"{place}.stop_details")
    return DisplayItem(
        sequence=item.sequence,
        type=ROW_TYPES.require(item.type, f"{field}.type"),
        content=content_from_pb(content, field=place),
        tool_status=TOOL_STATUSES.from_pb(item.tool_status),
        metadata=metadata,
        stop_reason=stop_reason,
        stop_details=stop_details,
    )


def content_to_pb(content: Content) -> display_pb2.DisplayContent:  # noqa: C901, PLR0911 - one arm each
    """Returns the content."""
    message = display_pb2.DisplayContent
    match content:
        case TextContent():
            return _text_to_pb(content)
        case MediaContent(media):
            return message(image=media_to_pb(media))
        case FileReference(path, name, media_type):
            reference = display_pb2.FileReference(path=path, name=name, media_type=media_type)
            return message(file_reference=reference)
        case StructuredData(form, data):
            structured = display_pb2.StructuredData(format=form, data=document_to_pb(data))
            return message(structured_data=structured)
        case ErrorContent(text, error_type):
            return message(error=display_pb2.ErrorContent(text=text, error_type=error_type))
        case ToolCallContent():
            return message(tool_call=_call_to_pb(content))
        case ToolResultContent():
            return message(tool_result=result_content_to_pb(content))
        case TodoSnapshot(todos):
            return message(todo_snapshot=_snapshot_to_pb(todos))
        case CustomContent(kind, document):
            custom = display_pb2.CustomContent(type=kind, document=document_to_pb(document))
            return message(custom=custom)
        case OpaqueContent(encoded):
            return message.FromString(encoded)
        case _:
            assert_never(content)


def content_from_pb(  # noqa: C901, PLR0911 - one arm each
    content: display_pb2.DisplayContent, *, field: str
) -> Content:
    """Returns the content; of an unknown kind as bytes.

    Raises:
        InvalidInputError: A field is missing or malformed.
    """
    match content.WhichOneof("body"):
        case "text":
            return TextContent(TextKind.TEXT, content.text.text)
        case "thinking":
            return TextContent(TextKind.THINKING, content.thinking.text)
        case "notification":
            return TextContent(TextKind.NOTIFICATION, content.notification.text)
        case "image":
            return MediaContent(
                media_from_pb(content.image, MediaKind.IMAGE, field=f"{field}.image")
            )
        case "file_reference":
            reference = content.file_reference
            return FileReference(reference.path, reference.name, reference.media_type)
        case "structured_data":
            data = document_from_pb(
                content.structured_data.data, field=f"{field}.structured_data.data"
            )
            return StructuredData(content.structured_data.format, data)
        case "error":
            return ErrorContent(content.error.text, content.error.error_type)
        case "tool_call":
            return _call_from_pb(content.tool_call, f"{field}.tool_call")
        case "tool_result":
            return _result_from_pb(content.tool_result, f"{field}.tool_result")
        case "todo_snapshot":
            todos = enumerate(content.todo_snapshot.todos)
            place = f"{field}.todo_snapshot.todos"
            return TodoSnapshot(tuple(todo_from_pb(todo, f"{place}[{i}]") for i, todo in todos))
        case "custom":
            kind = require_id(content.custom.type, f"{field}.custom.type")
            place = f"{field}.custom.document"
            return CustomContent(kind, document_from_pb(content.custom.document, field=place))
        case _:
            return OpaqueContent(content.SerializeToString())


def _text_to_pb(content: TextContent) -> display_pb2.DisplayContent:
    text = display_pb2.TextContent(text=content.text)
    match content.kind:
        case TextKind.TEXT:
            return display_pb2.DisplayContent(text=text)
        case TextKind.THINKING:
            return display_pb2.DisplayContent(thinking=text)
        case TextKind.NOTIFICATION:
            return display_pb2.DisplayContent(notification=text)
        case _:
            assert_never(content.kind)


def _call_to_pb(content: ToolCallContent) -> display_pb2.ToolCallContent:
    return display_pb2.ToolCallContent(
        call_id=content.call_id,
        name=content.name,
        arguments_json=content.arguments_json,
        display_text=content.display_text,
    )


def _call_from_pb(content: display_pb2.ToolCallContent, field: str) -> ToolCallContent:
    return ToolCallContent(
        call_id=require_id(content.call_id, f"{field}.call_id"),
        name=content.name,
        arguments_json=content.arguments_json,
        display_text=content.display_text,
    )


def result_content_to_pb(content: ToolResultContent) -> display_pb2.ToolResultContent:
    """Returns the content of a result row."""
    return display_pb2.ToolResultContent(
        call_id=content.call_id,
        name=content.name,
        text=content.text,
        is_error=content.is_error,
        is_interrupt=content.is_interrupt,
    )


def _result_from_pb(content: display_pb2.ToolResultContent, field: str) -> ToolResultContent:
    return ToolResultContent(
        call_id=require_id(content.call_id, f"{field}.call_id"),
        name=content.name,
        text=content.text,
        is_error=content.is_error,
        is_interrupt=content.is_interrupt,
    )


def _snapshot_to_pb(todos: tuple[Todo, ...]) -> display_pb2.TodoSnapshot:
    counts = Counter(todo.status for todo in todos)
    return display_pb2.TodoSnapshot(
        todos=todos_to_pb(todos),
        summary=display_pb2.TodoSummary(
            total=len(todos),
            pending=counts[TodoStatus.PENDING],
            in_progress=counts[TodoStatus.IN_PROGRESS],
            completed=counts[TodoStatus.COMPLETED],
            cancelled=counts[TodoStatus.CANCELLED],
        ),
    )


def todos_to_pb(todos: Iterable[Todo]) -> list[display_pb2.Todo]:
    """Returns a todo list."""
    return [
        display_pb2.Todo(id=todo.id, content=todo.content, status=TODO_STATUSES.to_pb(todo.status))
        for todo in todos
    ]


def todo_from_pb(todo: display_pb2.Todo, field: str) -> Todo:
    """Returns one item of a todo list; an unknown status is pending.

    Raises:
        InvalidInputError: Its id is below 1.
    """
    if todo.id < 1:
        raise InvalidInputError(f"{field}.id", "must be 1 or more", actual=todo.id)
    status = TODO_STATUSES.from_pb(todo.status) or TodoStatus.PENDING
    return Todo(todo.id, todo.content, status)


def tool_info_to_pb(info: ToolInfo) -> display_pb2.ToolInfo:
    """Returns what is known of a tool call; None stays unset."""
    return display_pb2.ToolInfo(
        name=info.name,
        display_text=info.display_text,
        arguments_json=info.arguments_json,
        result=info.result,
        error=info.error,
    )


def row_from_pb(row: display_pb2.DisplayMessage, *, field: str) -> DisplayMessage:
    """Returns a row as its store saved it.

    Raises:
        InvalidInputError: A fact that the server goes by is missing or malformed.
    """
    for name in ("position", "change"):
        number: int = getattr(row, name)
        if number < 1:
            raise InvalidInputError(f"{field}.{name}", "must be 1 or more", actual=number)
    return DisplayMessage(
        display_message_id=require_id(row.display_message_id, f"{field}.display_message_id"),
        position=row.position,
        change=row.change,
        message_id=require_id(row.message_id, f"{field}.message_id"),
        encoded=row.SerializeToString(),
    )


def row_to_pb(row: DisplayMessage) -> display_pb2.DisplayMessage:
    """Returns the row as its store saved it, unknown fields included."""
    return display_pb2.DisplayMessage.FromString(row.encoded)
