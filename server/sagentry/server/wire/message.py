"""Messages and their parts."""

from __future__ import annotations

from typing import TypeVar, assert_never

from sagentry.api.type.v1 import message_pb2
from sagentry.server.domain.messages import (
    MediaKind,
    MediaPart,
    Message,
    MessageStatus,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.errors import InvalidInputError, LimitExceededError
from sagentry.server.wire.document import document_from_pb, document_to_pb, json_object_from_pb
from sagentry.server.wire.fields import (
    EnumTable,
    optional_id,
    require_id,
    require_length,
    time_from_pb,
    time_to_pb,
)

MAX_TEXT_BYTES = 1024 * 1024
"""Largest text of a message, all parts together."""

MAX_ENCODED_BYTES = 2 * 1024 * 1024
"""Largest message, encoded."""

MAX_URL_LENGTH = 8192

T = TypeVar("T")

ROLES = EnumTable(Role, message_pb2.Role, "ROLE_")
MESSAGE_STATUSES = EnumTable(MessageStatus, message_pb2.MessageStatus, "MESSAGE_STATUS_")
CALL_STATUSES = EnumTable(ToolCallStatus, message_pb2.ToolCallStatus, "TOOL_CALL_STATUS_")


def message_to_pb(message: Message) -> message_pb2.Message:
    """Returns the message."""
    return message_pb2.Message(
        message_id=message.message_id,
        role=ROLES.to_pb(message.role),
        parts=[part_to_pb(part) for part in message.parts],
        status=MESSAGE_STATUSES.to_pb(message.status),
        usage=None if message.usage is None else usage_to_pb(message.usage),
        metadata=None if message.metadata is None else document_to_pb(message.metadata),
        create_time=time_to_pb(message.create_time),
        run_id=message.run_id,
    )


def message_from_pb(message: message_pb2.Message, *, field: str = "message") -> Message:
    """Returns the message.

    Raises:
        InvalidInputError: A field is missing, malformed or over its limit.
        LimitExceededError: MESSAGE_TOO_LARGE.
    """
    role = ROLES.require(message.role, f"{field}.role")
    check_size(message, field=field)
    if not message.parts:
        raise InvalidInputError(f"{field}.parts", "needs 1 or more")
    parts = tuple(
        part_from_pb(part, field=f"{field}.parts[{index}]")
        for index, part in enumerate(message.parts)
    )
    metadata = None
    if message.HasField("metadata"):
        metadata = json_object_from_pb(message.metadata, field=f"{field}.metadata")
    return Message(
        message_id=optional_id(message.message_id, f"{field}.message_id"),
        role=role,
        parts=parts,
        create_time=time_from_pb(message.create_time, f"{field}.create_time"),
        status=_status_from_pb(message.status),
        usage=usage_from_pb(message.usage) if message.HasField("usage") else None,
        metadata=metadata,
        run_id=optional_id(message.run_id, f"{field}.run_id"),
    )


def _status_from_pb(value: message_pb2.MessageStatus.ValueType) -> MessageStatus:
    if value == message_pb2.MESSAGE_STATUS_UNSPECIFIED:
        return MessageStatus.COMPLETE
    # An unknown one is "not complete"; of those this one says least.
    return MESSAGE_STATUSES.from_pb(value) or MessageStatus.STREAM_ERROR


def check_size(message: message_pb2.Message, *, field: str) -> None:
    """Checks the limits of a whole message.

    Raises:
        LimitExceededError: MESSAGE_TOO_LARGE.
    """
    encoded = message.ByteSize()
    if encoded > MAX_ENCODED_BYTES:
        text = f"{field} has {encoded} bytes and at most {MAX_ENCODED_BYTES} are allowed"
        raise LimitExceededError(
            "MESSAGE_TOO_LARGE", text, limit=MAX_ENCODED_BYTES, actual=encoded, field=field
        )
    # Text cannot be larger than what holds it.
    if encoded <= MAX_TEXT_BYTES:
        return
    size = sum(_text_bytes(part) for part in message.parts)
    if size > MAX_TEXT_BYTES:
        text = f"{field} has {size} bytes of text and at most {MAX_TEXT_BYTES} are allowed"
        raise LimitExceededError(
            "MESSAGE_TOO_LARGE", text, limit=MAX_TEXT_BYTES, actual=size, field=field
        )


def _text_bytes(part: message_pb2.Part) -> int:
    texts = (part.text.text, part.thinking.text, part.tool_call.arguments_json)
    inner = sum(_text_bytes(one) for one in part.tool_result.parts)
    return inner + sum(len(text.encode()) for text in texts)


def part_to_pb(part: Part) -> message_pb2.Part:
    """Returns the part."""
    match part:
        case TextPart(text):
            return message_pb2.Part(text=message_pb2.TextPart(text=text))
        case ThinkingPart(text, signature):
            thinking = message_pb2.ThinkingPart(text=text, signature=signature)
            return message_pb2.Part(thinking=thinking)
        case ToolCall():
            return message_pb2.Part(tool_call=_call_to_pb(part))
        case ToolResult():
            return message_pb2.Part(tool_result=tool_result_to_pb(part))
        case MediaPart():
            return _media_part_to_pb(part)
        case OpaquePart(document):
            return message_pb2.Part(opaque=document_to_pb(document))
        case _:
            assert_never(part)


def part_from_pb(part: message_pb2.Part, *, field: str) -> Part:  # noqa: PLR0911 - one arm each
    """Returns the part.

    Raises:
        InvalidInputError: It is unset, of an unknown kind, or a field of it is malformed.
    """
    match part.WhichOneof("content"):
        case "text":
            return TextPart(part.text.text)
        case "thinking":
            return ThinkingPart(part.thinking.text, part.thinking.signature)
        case "tool_call":
            return _call_from_pb(part.tool_call, f"{field}.tool_call")
        case "tool_result":
            return _result_from_pb(part.tool_result, f"{field}.tool_result")
        case "opaque":
            return OpaquePart(document_from_pb(part.opaque, field=f"{field}.opaque"))
        case "image":
            return media_from_pb(part.image, MediaKind.IMAGE, field=f"{field}.image")
        case "file":
            return media_from_pb(part.file, MediaKind.FILE, field=f"{field}.file")
        case "audio":
            return media_from_pb(part.audio, MediaKind.AUDIO, field=f"{field}.audio")
        case _:
            raise InvalidInputError(field, "has no content of a known kind")


def _call_to_pb(call: ToolCall) -> message_pb2.ToolCall:
    return message_pb2.ToolCall(
        call_id=call.call_id,
        provider_call_id=call.provider_call_id,
        name=call.name,
        arguments_json=call.arguments_json,
        display_text=call.display_text,
        status=CALL_STATUSES.to_pb(call.status),
    )


def _call_from_pb(call: message_pb2.ToolCall, field: str) -> ToolCall:
    return ToolCall(
        call_id=require_id(call.call_id, f"{field}.call_id"),
        name=require_id(call.name, f"{field}.name"),
        arguments_json=call.arguments_json,
        provider_call_id=call.provider_call_id,
        display_text=call.display_text,
        status=CALL_STATUSES.from_pb(call.status) or ToolCallStatus.INCOMPLETE,
    )


def tool_result_to_pb(result: ToolResult) -> message_pb2.ToolResult:
    """Returns the result of a tool."""
    return message_pb2.ToolResult(
        call_id=result.call_id,
        name=result.name,
        parts=[part_to_pb(part) for part in result.parts],
        is_error=result.is_error,
        item_id=result.item_id,
    )


def _result_from_pb(result: message_pb2.ToolResult, field: str) -> ToolResult:
    parts: list[TextPart | MediaPart] = []
    for index, inner in enumerate(result.parts):
        part = part_from_pb(inner, field=f"{field}.parts[{index}]")
        if not isinstance(part, TextPart | MediaPart):
            raise InvalidInputError(f"{field}.parts[{index}]", "must be text or media")
        parts.append(part)
    return ToolResult(
        call_id=require_id(result.call_id, f"{field}.call_id"),
        name=result.name,
        parts=tuple(parts),
        is_error=result.is_error,
        item_id=optional_id(result.item_id, f"{field}.item_id"),
    )


def media_to_pb(media: MediaPart) -> message_pb2.MediaPart:
    """Returns media; their kind is the arm that holds them."""
    message = message_pb2.MediaPart(media_type=media.media_type, name=media.name)
    if media.url is not None:
        message.url = media.url
    else:
        message.data = media.data or b""
    return message


def media_from_pb(media: message_pb2.MediaPart, kind: MediaKind, *, field: str) -> MediaPart:
    """Returns media of the kind of their arm.

    Raises:
        InvalidInputError: The media type or the source is missing, or the address is too long.
    """
    if not media.media_type:
        raise InvalidInputError(f"{field}.media_type", "is required")
    match media.WhichOneof("source"):
        case "url":
            require_length(media.url, MAX_URL_LENGTH, f"{field}.url")
            return MediaPart(kind, media.media_type, media.name, url=media.url)
        case "data":
            return MediaPart(kind, media.media_type, media.name, data=media.data)
        case _:
            raise InvalidInputError(field, "needs url or data")


def _media_part_to_pb(media: MediaPart) -> message_pb2.Part:
    content = media_to_pb(media)
    match media.kind:
        case MediaKind.IMAGE:
            return message_pb2.Part(image=content)
        case MediaKind.FILE:
            return message_pb2.Part(file=content)
        case MediaKind.AUDIO:
            return message_pb2.Part(audio=content)
        case _:
            assert_never(media.kind)


def usage_to_pb(usage: TokenUsage) -> message_pb2.TokenUsage:
    """Returns the usage; what was not reported stays unset."""
    return message_pb2.TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        thinking_tokens=usage.thinking_tokens,
    )


def usage_from_pb(usage: message_pb2.TokenUsage) -> TokenUsage:
    """Returns the usage; the provider's own report is not kept."""
    return TokenUsage(
        input_tokens=_present(usage.input_tokens, present=usage.HasField("input_tokens")),
        output_tokens=_present(usage.output_tokens, present=usage.HasField("output_tokens")),
        cache_read_tokens=_present(
            usage.cache_read_tokens, present=usage.HasField("cache_read_tokens")
        ),
        cache_write_tokens=_present(
            usage.cache_write_tokens, present=usage.HasField("cache_write_tokens")
        ),
        thinking_tokens=_present(usage.thinking_tokens, present=usage.HasField("thinking_tokens")),
    )


def _present(value: T, *, present: bool) -> T | None:
    return value if present else None
