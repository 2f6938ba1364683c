"""Display writes as requests, and what stores answer to them."""

from __future__ import annotations

from typing import TypeVar, assert_never

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.server.domain.display import DisplayMessage
from sagentry.server.domain.writes import (
    DisplayWrite,
    ResolveToolResult,
    RowMissing,
    RowsSaved,
    RowUpdated,
    SaveMessage,
    SaveSynthetic,
    UpdateToolStatus,
    WriteOutcome,
)
from sagentry.server.plugin.binding import ContractViolation
from sagentry.server.plugin.v1.context import check_identity, converting, outcome_unset
from sagentry.server.ports import PluginCall
from sagentry.server.wire.display import (
    TOOL_STATUSES,
    item_to_pb,
    result_content_to_pb,
    row_from_pb,
    tool_info_to_pb,
)
from sagentry.server.wire.message import message_to_pb

Response = (
    pb.SaveMessageResponse
    | pb.UpdateToolStatusResponse
    | pb.ResolveToolResultResponse
    | pb.SaveSyntheticMessageResponse
)

ResponseT = TypeVar("ResponseT", bound=Response)


def write_to_pb(write: DisplayWrite) -> pb.Write:
    """Returns a write without a context, as a group holds it."""
    match write:
        case SaveMessage(message, items):
            return pb.Write(
                save_message=pb.SaveMessageRequest(
                    message=message_to_pb(message), items=[item_to_pb(item) for item in items]
                )
            )
        case UpdateToolStatus(message_id, call_id, status, tool_info):
            return pb.Write(
                update_tool_status=pb.UpdateToolStatusRequest(
                    message_id=message_id,
                    call_id=call_id,
                    status=TOOL_STATUSES.to_pb(status),
                    tool_info=tool_info_to_pb(tool_info),
                )
            )
        case ResolveToolResult(message_id, call_id, content):
            return pb.Write(
                resolve_tool_result=pb.ResolveToolResultRequest(
                    message_id=message_id, call_id=call_id, content=result_content_to_pb(content)
                )
            )
        case SaveSynthetic(message_id, item):
            return pb.Write(
                save_synthetic_message=pb.SaveSyntheticMessageRequest(
                    message_id=message_id, item=item_to_pb(item)
                )
            )
        case _:
            assert_never(write)


def read_outcome(outcome: pb.WriteOutcome, write: DisplayWrite, call: PluginCall) -> WriteOutcome:
    """Reads the outcome of one write of a group.

    Raises:
        ContractViolation: It is not an outcome of that write.
    """
    match write, outcome.WhichOneof("outcome"):
        case SaveMessage(), "save_message":
            return read_response(outcome.save_message, write, call)
        case UpdateToolStatus(), "update_tool_status":
            return read_response(outcome.update_tool_status, write, call)
        case ResolveToolResult(), "resolve_tool_result":
            return read_response(outcome.resolve_tool_result, write, call)
        case SaveSynthetic(), "save_synthetic_message":
            return read_response(outcome.save_synthetic_message, write, call)
        case _:
            raise ContractViolation("an outcome is not of the kind of its write")


def read_response(response: Response, write: DisplayWrite, call: PluginCall) -> WriteOutcome:
    """Reads the response to one write.

    Raises:
        ContractViolation: It breaks the contract.
    """
    match response:
        case pb.SaveMessageResponse():
            return _saved(response, write, call)
        case pb.SaveSyntheticMessageResponse():
            if response.WhichOneof("outcome") != "saved":
                raise outcome_unset()
            row = read_row(response.saved.display_message, call, "saved.display_message")
            return RowsSaved((_of_message(row, write, "saved.display_message"),))
        case pb.UpdateToolStatusResponse() | pb.ResolveToolResultResponse():
            match response.WhichOneof("outcome"):
                case "updated":
                    row = read_row(
                        response.updated.display_message, call, "updated.display_message"
                    )
                    return RowUpdated(_of_message(row, write, "updated.display_message"))
                case "no_match":
                    return RowMissing()
                case _:
                    raise outcome_unset()
        case _:
            assert_never(response)


def _saved(response: pb.SaveMessageResponse, write: DisplayWrite, call: PluginCall) -> WriteOutcome:
    if response.WhichOneof("outcome") != "saved":
        raise outcome_unset()
    rows = []
    for index, message in enumerate(response.saved.display_messages):
        what = f"saved.display_messages[{index}]"
        rows.append(_of_message(read_row(message, call, what), write, what))
    return RowsSaved(tuple(rows))


def read_row(message: display_pb2.DisplayMessage, call: PluginCall, what: str) -> DisplayMessage:
    """Reads a row of the conversation of a call.

    Raises:
        ContractViolation: It is of another conversation, or a fact of it is malformed.
    """
    check_identity(message, call, what)
    with converting():
        return row_from_pb(message, field=what)


def _of_message(row: DisplayMessage, write: DisplayWrite, what: str) -> DisplayMessage:
    asked = write.message.message_id if isinstance(write, SaveMessage) else write.message_id
    if row.message_id != asked:
        message = f"{what}.message_id is not the one that was asked for"
        raise ContractViolation(message)
    return row
