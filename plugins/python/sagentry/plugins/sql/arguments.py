"""Checks what the SDK does not: the fields of each request beside its context.

Only what the contract requires is checked, and what this store finds its rows by. Content that it does
not understand is kept as it is.
"""

from __future__ import annotations

from google.protobuf.message import Message

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2, document_pb2
from sagentry.plugins.sdk import InvalidFieldError, checked_id

MAX_GROUPS = 256
MAX_WRITES = 256
MAX_PAGE_SIZE = 1000
_MAX_MEDIA_TYPE_CHARACTERS = 256
_ORDERS = frozenset(
    {
        display_pb.LIST_ORDER_POSITION_ASCENDING,
        display_pb.LIST_ORDER_POSITION_DESCENDING,
        display_pb.LIST_ORDER_CHANGE_ASCENDING,
    }
)


def check_persist_state(request: agent_pb.PersistStateRequest) -> None:
    """Checks a PersistState. Raises InvalidFieldError, as all functions of this module."""
    _check_json(request, "state")
    _check_positive(request.schema_version, "schema_version")
    _check_positive(request.revision, "revision")


def check_load_state(request: agent_pb.LoadStateRequest) -> None:
    """Checks a LoadState."""
    if request.HasField("claim"):
        checked_id(request.claim.owner_id, "claim.owner_id")


def check_append_state(request: agent_pb.AppendStateRequest) -> None:
    """Checks an AppendState."""
    _check_positive(request.expected_revision, "expected_revision")
    _check_positive(request.revision, "revision")
    if request.revision <= request.expected_revision:
        raise InvalidFieldError("revision", "must be higher than expected_revision")
    _check_json(request, "patch")


def check_set_interrupted(request: agent_pb.SetInterruptedRequest) -> None:
    """Checks a SetInterrupted."""
    _check_positive(request.revision, "revision")


def check_save_message(request: display_pb.SaveMessageRequest, path: str = "") -> None:
    """Checks a SaveMessage. `path` stands before the names of fields, as in all below."""
    if not request.HasField("message"):
        raise InvalidFieldError(f"{path}message", "required")
    checked_id(request.message.message_id, f"{path}message.message_id")
    sequences = set()
    for index, item in enumerate(request.items):
        _check_item(item, f"{path}items[{index}]")
        if item.sequence in sequences:
            raise InvalidFieldError(f"{path}items[{index}].sequence", "given twice")
        sequences.add(item.sequence)


def check_update_tool_status(request: display_pb.UpdateToolStatusRequest, path: str = "") -> None:
    """Checks an UpdateToolStatus."""
    checked_id(request.message_id, f"{path}message_id")
    checked_id(request.call_id, f"{path}call_id")
    if request.status == display_pb2.TOOL_STATUS_UNSPECIFIED:
        raise InvalidFieldError(f"{path}status", "required")


def check_resolve_tool_result(request: display_pb.ResolveToolResultRequest, path: str = "") -> None:
    """Checks a ResolveToolResult."""
    checked_id(request.message_id, f"{path}message_id")
    checked_id(request.call_id, f"{path}call_id")
    if not request.HasField("content"):
        raise InvalidFieldError(f"{path}content", "required")
    if request.content.call_id != request.call_id:
        raise InvalidFieldError(f"{path}content.call_id", "must be the call_id of the request")
    if request.content.is_interrupt:
        raise InvalidFieldError(f"{path}content.is_interrupt", "must be false")


def check_save_synthetic_message(
    request: display_pb.SaveSyntheticMessageRequest, path: str = ""
) -> None:
    """Checks a SaveSyntheticMessage."""
    checked_id(request.message_id, f"{path}message_id")
    if not request.HasField("item"):
        raise InvalidFieldError(f"{path}item", "required")
    _check_item(request.item, f"{path}item")


def check_list_display_messages(request: display_pb.ListDisplayMessagesRequest) -> None:
    """Checks a ListDisplayMessages."""
    if request.order not in _ORDERS:
        raise InvalidFieldError("order", "required: by position or by change")
    if not 0 <= request.page_size <= MAX_PAGE_SIZE:
        raise InvalidFieldError(
            "page_size",
            f"must be from 0 to {MAX_PAGE_SIZE}",
            limit=MAX_PAGE_SIZE,
            actual=request.page_size,
        )


def check_apply_writes(request: display_pb.ApplyWritesRequest) -> None:
    """Checks an ApplyWrites as a whole; each group is checked by itself."""
    _check_count(len(request.groups), MAX_GROUPS, "groups")


def check_writes(group: display_pb.WriteGroup) -> None:
    """Checks the writes of a group."""
    _check_count(len(group.writes), MAX_WRITES, "writes")
    for index, write in enumerate(group.writes):
        _check_write(write, f"writes[{index}]")


def _check_write(write: display_pb.Write, path: str) -> None:
    arm = write.WhichOneof("write")
    if arm is None:
        raise InvalidFieldError(path, "required: a write of a known kind")
    inner = f"{path}.{arm}."
    # The group's context holds. Another one could name another tenant.
    if getattr(write, arm).HasField("context"):
        raise InvalidFieldError(f"{inner}context", "must be unset inside a group")
    match arm:
        case "save_message":
            check_save_message(write.save_message, inner)
        case "update_tool_status":
            check_update_tool_status(write.update_tool_status, inner)
        case "resolve_tool_result":
            check_resolve_tool_result(write.resolve_tool_result, inner)
        case "save_synthetic_message":
            check_save_synthetic_message(write.save_synthetic_message, inner)


def _check_item(item: display_pb2.DisplayItem, path: str) -> None:
    if item.type == display_pb2.DISPLAY_MESSAGE_TYPE_UNSPECIFIED:
        raise InvalidFieldError(f"{path}.type", "required")
    if not item.HasField("content"):
        raise InvalidFieldError(f"{path}.content", "required")
    match item.content.WhichOneof("body"):
        case "tool_call":
            checked_id(item.content.tool_call.call_id, f"{path}.content.tool_call.call_id")
        case "tool_result":
            checked_id(item.content.tool_result.call_id, f"{path}.content.tool_result.call_id")


def _check_json(request: Message, field: str) -> None:
    if not request.HasField(field):
        raise InvalidFieldError(field, "required")
    document: document_pb2.Document = getattr(request, field)
    if document.WhichOneof("body") != "json" or not document.json:
        raise InvalidFieldError(f"{field}.json", "required: JSON text")
    if "\0" in document.json:
        raise InvalidFieldError(f"{field}.json", "is not JSON: it holds the character U+0000")
    if not 1 <= len(document.media_type) <= _MAX_MEDIA_TYPE_CHARACTERS:
        raise InvalidFieldError(
            f"{field}.media_type", f"must have 1 to {_MAX_MEDIA_TYPE_CHARACTERS} characters"
        )


def _check_positive(value: int, field: str) -> None:
    if value < 1:
        raise InvalidFieldError(field, "required: at least 1")


def _check_count(count: int, limit: int, field: str) -> None:
    if not 1 <= count <= limit:
        raise InvalidFieldError(field, f"must be 1 to {limit}", limit=limit, actual=count)
