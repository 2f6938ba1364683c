"""DisplayMessagePersistenceService, level 1: what is saved and answered, argument checks."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import re

import grpc

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2, document_pb2, scope_pb2
from sagentry.plugins.check.answer import CheckFailedError
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.methods import (
    DISPLAY_MESSAGE_PERSISTENCE,
    OPEN_CONVERSATION,
    RESOLVE_TOOL_RESULT,
    SAVE_MESSAGE,
    SAVE_SYNTHETIC_MESSAGE,
    UPDATE_TOOL_STATUS,
)
from sagentry.plugins.check.owned import (
    OwnedTranscript,
    call_item,
    json_document,
    result_item,
    text_item,
)
from sagentry.plugins.check.session import Session

cases = Cases(
    "display_message_persistence", contract=DISPLAY_MESSAGE_PERSISTENCE, level=Level.REQUIRED
)

TRICKY = '{ "b" :1,"a":  1e2, "big":12345678901234567890, "lone":"\\ud83d", "nul":"\\u0000", "b":2}'
"""JSON that whoever parses and writes it again changes."""

_ID = re.compile(r"[!-~]{1,256}")
_UNKNOWN_TYPE = 99
_UNKNOWN_FIELD = b"\x82\xd3\x0e\x06future"  # field 30000, a string that no version knows yet
# An arm of the future: field 29000, a message with one string.
_UNKNOWN_ARM = b"\xc2\x94\x0e\x08\x0a\x06future"


def expect_rows(holds: bool, expected: str, got: object) -> None:  # noqa: FBT001  the condition
    """Judges rows that a SaveMessage has answered."""
    if not holds:
        raise CheckFailedError(sent="SaveMessage", expected=expected, got=str(got))


@cases.case("SaveMessage answers `saved` with 0 or more rows.")
async def message_is_saved(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for items in ([], [text_item()]):
        answer = await owned.save(*items)
        answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")


@cases.case("Every response repeats the request's request_id.")
async def request_id_is_repeated(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    request_id = session.name("request")
    answer = await owned.save(text_item(), request_id=request_id)
    answer.expect(answer.ok().request_id == request_id, f"request_id {request_id}")


@cases.case("DisplayMessage: tenant, partition and conversation_id as stored.")
async def identity_is_as_stored(session: Session) -> None:
    owned = await OwnedTranscript.opened(session, session.scope(partition="user-1"))
    (row,) = await owned.rows(text_item())
    wanted = (owned.scope.scoped.tenant, "user-1", owned.conversation_id)
    got = (row.tenant, row.partition, row.conversation_id)
    expect_rows(got == wanted, f"identity {wanted}", got)


@cases.case("DisplayMessage.tenant: empty for unscoped data.")
async def unscoped_row_has_no_tenant(session: Session) -> None:
    owned = await OwnedTranscript.opened(session, scope_pb2.Scope(unscoped=scope_pb2.Unscoped()))
    (row,) = await owned.rows(text_item())
    expect_rows(row.tenant == "", "an empty tenant", repr(row.tenant))


@cases.case("DisplayMessage.message_id: the message that the row is a part of.")
async def rows_name_their_message(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    rows = await owned.rows(text_item("a"), text_item("b", 1), message_id=message_id)
    expect_rows(all(row.message_id == message_id for row in rows), message_id, rows)


@cases.case("display_message_id: `[!-~]{1,256}`, unique in the conversation.")
async def row_ids_are_unique(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    rows = [
        *await owned.rows(text_item("a"), text_item("b", 1)),
        *await owned.rows(text_item("c")),
    ]
    ids = [row.display_message_id for row in rows]
    expect_rows(all(_ID.fullmatch(each) for each in ids), f"ids that match {_ID.pattern}", ids)
    expect_rows(len(set(ids)) == len(ids), "different ids", ids)


@cases.case("MessageSaved: the rows of the message, by `sequence`.")
async def rows_come_by_sequence(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    rows = await owned.rows(text_item("a"), text_item("b", 1), text_item("c", 2))
    sequences = [row.sequence for row in rows]
    expect_rows(sequences == sorted(set(sequences)), "ascending sequences", sequences)


@cases.case("position: order of insertion in the whole conversation, from 1.")
async def positions_ascend(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    rows = [
        *await owned.rows(text_item("a"), text_item("b", 1)),
        *await owned.rows(text_item("c")),
    ]
    got = [row.position for row in rows]
    expect_rows(got[0] >= 1 and got == sorted(set(got)), "ascending positions from 1", got)


@cases.case("change: counter of the conversation, from 1, taken at every insert.")
async def changes_ascend(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    rows = [
        *await owned.rows(text_item("a"), text_item("b", 1)),
        *await owned.rows(text_item("c")),
    ]
    got = [row.change for row in rows]
    expect_rows(got[0] >= 1 and got == sorted(set(got)), "ascending changes from 1", got)


@cases.case("insert_time: when the row was inserted, by the store's clock.")
async def insert_time_is_set(session: Session) -> None:
    (row,) = await (await OwnedTranscript.opened(session)).rows(text_item())
    expect_rows(row.HasField("insert_time"), "an insert_time", row)


@cases.case("A tool call's row begins as pending.")
async def calls_begin_as_pending(session: Session) -> None:
    (row,) = await (await OwnedTranscript.opened(session)).rows(call_item("call-1"))
    expect_rows(row.tool_status == display_pb2.TOOL_STATUS_PENDING, "tool_status pending", row)


@cases.case("tool_status: unspecified unless the content is a `tool_call`.")
async def only_calls_have_a_status(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for item in (text_item(), result_item("call-1", "done")):
        (row,) = await owned.rows(item)
        expect_rows(row.tool_status == 0, "tool_status unspecified", row)


@cases.case("ToolCallContent.arguments_json: arguments as JSON text, verbatim.")
async def arguments_are_kept_verbatim(session: Session) -> None:
    (row,) = await (await OwnedTranscript.opened(session)).rows(
        call_item("call-1", arguments=TRICKY)
    )
    got = row.content.tool_call.arguments_json
    expect_rows(got == TRICKY, f"arguments {TRICKY!r}", repr(got))


@cases.case("CustomContent.document: kept verbatim.")
async def custom_content_is_kept_verbatim(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    documents = (
        json_document(TRICKY),
        document_pb2.Document(media_type="application/x-bytes", data=bytes(range(256))),
    )
    for document in documents:
        item = text_item()
        item.content.custom.type = "example"
        item.content.custom.document.CopyFrom(document)
        (row,) = await owned.rows(item)
        expect_rows(row.content == item.content, f"the content {item.content}", row.content)


@cases.case("DisplayMessage.metadata: one JSON object, verbatim as the item had it.")
async def metadata_is_kept_verbatim(session: Session) -> None:
    item = text_item()
    item.metadata.CopyFrom(json_document(TRICKY))
    (row,) = await (await OwnedTranscript.opened(session)).rows(item)
    expect_rows(row.metadata == item.metadata, f"metadata {TRICKY!r}", row.metadata)


@cases.case("An item with content that the plugin does not know is saved as it is.")
async def unknown_content_is_saved(session: Session) -> None:
    item = display_pb2.DisplayItem(type=display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT)
    item.content.MergeFromString(_UNKNOWN_ARM)
    (row,) = await (await OwnedTranscript.opened(session)).rows(item)
    got = row.content.SerializeToString()
    expect_rows(got == _UNKNOWN_ARM, f"the content {_UNKNOWN_ARM!r}", repr(got))


@cases.case("DisplayMessageType: new values may appear.")
async def unknown_type_is_saved(session: Session) -> None:
    item = text_item()
    item.type = _UNKNOWN_TYPE  # type: ignore[assignment]  # a value of the future
    (row,) = await (await OwnedTranscript.opened(session)).rows(item)
    expect_rows(row.type == _UNKNOWN_TYPE, f"type {_UNKNOWN_TYPE}", row)


@cases.case("Fields that a plugin does not know may appear.")
async def unknown_fields_are_tolerated(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    request = owned.save_request([text_item()])
    request.context.CopyFrom(owned.context())
    raw = request.SerializeToString() + _UNKNOWN_FIELD
    answer = await session.call_raw(SAVE_MESSAGE, raw, "SaveMessage with an unknown field")
    answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")


@cases.case("UpdateToolStatus moves a tool call's row to another status.")
async def status_moves(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(call_item("call-1"))
    for status in (display_pb2.TOOL_STATUS_EXECUTING, display_pb2.TOOL_STATUS_COMPLETED):
        answer = await owned.update(row, status)
        answer.expect(answer.ok().WhichOneof("outcome") == "updated", "the outcome updated")
        got = answer.ok().updated.display_message
        answer.expect(got.tool_status == status, f"tool_status {status}")
        answer.expect(
            got.display_message_id == row.display_message_id and got.position == row.position,
            "the same row at the same position",
        )


@cases.case("`change` is taken at every insert and at every update.")
async def update_takes_a_change(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    row, later = await owned.rows(call_item("call-1"), text_item("later", 1))
    answer = await owned.update(row, display_pb2.TOOL_STATUS_EXECUTING)
    got = answer.ok().updated.display_message.change
    answer.expect(got > later.change, f"a change above {later.change}")


@cases.case("ToolInfo: a field that is set replaces the stored one; one that is unset leaves it.")
async def tool_info_is_merged(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(call_item("call-1"))
    begun = display_pb2.ToolInfo(name="search", display_text="Searching", arguments_json=TRICKY)
    (await owned.update(row, display_pb2.TOOL_STATUS_EXECUTING, begun)).ok()
    done = display_pb2.ToolInfo(display_text="Searched", result="42")
    answer = await owned.update(row, display_pb2.TOOL_STATUS_COMPLETED, done)
    wanted = display_pb2.ToolInfo(
        name="search", display_text="Searched", arguments_json=TRICKY, result="42"
    )
    got = answer.ok().updated.display_message.tool_info
    answer.expect(got == wanted, f"tool_info {wanted}")


@cases.case("UpdateToolStatus: `no_match` when the message has no such call's row.")
async def unknown_call_does_not_match(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(call_item("call-1"))
    other_call, other_message = display_pb2.DisplayMessage(), display_pb2.DisplayMessage()
    other_call.CopyFrom(row)
    other_call.content.tool_call.call_id = "call-2"
    other_message.CopyFrom(row)
    other_message.message_id = session.name("message")
    for other in (other_call, other_message):
        answer = await owned.update(other, display_pb2.TOOL_STATUS_EXECUTING)
        answer.expect(answer.ok().WhichOneof("outcome") == "no_match", "the outcome no_match")


@cases.case("A tool result's row is no call's row: UpdateToolStatus does not match it.")
async def result_row_has_no_status(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(result_item("call-1", "done"))
    row.content.tool_call.call_id = "call-1"
    answer = await owned.update(row, display_pb2.TOOL_STATUS_EXECUTING)
    answer.expect(answer.ok().WhichOneof("outcome") == "no_match", "the outcome no_match")


@cases.case(
    "ResolveToolResult replaces the content of a row that holds the place of an answer.",
    needs=(RESOLVE_TOOL_RESULT.capability,),
)
async def result_is_resolved(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(result_item("call-1", "waiting", is_interrupt=True))
    answer = await owned.resolve(row, "the answer")
    answer.expect(answer.ok().WhichOneof("outcome") == "updated", "the outcome updated")
    got = answer.ok().updated.display_message
    result = got.content.tool_result
    answer.expect(result.text == "the answer" and not result.is_interrupt, "the new content")
    answer.expect(got.change > row.change, f"a change above {row.change}")


@cases.case(
    "ResolveToolResult: `no_match` for a row that is not interrupted, or unknown.",
    needs=(RESOLVE_TOOL_RESULT.capability,),
)
async def finished_result_does_not_match(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(result_item("call-1", "done"))
    unknown = display_pb2.DisplayMessage()
    unknown.CopyFrom(row)
    unknown.message_id = session.name("message")
    for each in (row, unknown):
        answer = await owned.resolve(each, "the answer")
        answer.expect(answer.ok().WhichOneof("outcome") == "no_match", "the outcome no_match")


@cases.case("ResolveToolResultRequest.content: required.", needs=(RESOLVE_TOOL_RESULT.capability,))
async def resolved_content_is_required(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    request = pb.ResolveToolResultRequest(
        context=owned.context(), message_id="message-1", call_id="call-1"
    )
    answer = await session.call(RESOLVE_TOOL_RESULT, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "SaveSyntheticMessage saves a row that no message stands behind.",
    needs=(SAVE_SYNTHETIC_MESSAGE.capability,),
)
async def synthetic_message_is_saved(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    item = text_item()
    item.content.notification.text = "cancelled"
    answer = await owned.synthetic(item, message_id)
    answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")
    row = answer.ok().saved.display_message
    answer.expect(row.message_id == message_id and row.position >= 1, "a row of that message")


@cases.case(
    "SaveSyntheticMessageRequest: message_id and item are required.",
    needs=(SAVE_SYNTHETIC_MESSAGE.capability,),
)
async def synthetic_message_is_checked(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    requests = (
        pb.SaveSyntheticMessageRequest(context=owned.context(), item=text_item()),
        pb.SaveSyntheticMessageRequest(context=owned.context(), message_id="message-1"),
    )
    for request in requests:
        answer = await session.call(SAVE_SYNTHETIC_MESSAGE, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "ConversationOpened: position of the last row, change of the last write; 0 for none.",
    needs=(OPEN_CONVERSATION.capability,),
)
async def open_tells_the_counters(session: Session) -> None:
    owned = OwnedTranscript.new(session).at(1)
    answer = await owned.open()
    answer.expect(answer.ok().WhichOneof("outcome") == "opened", "the outcome opened")
    got = answer.ok().opened
    answer.expect(got.last_position == 0 and got.last_change == 0, "0 and 0")
    rows = await owned.rows(call_item("call-1"), text_item("b", 1))
    updated = (await owned.update(rows[0], display_pb2.TOOL_STATUS_EXECUTING)).ok().updated
    answer = await owned.open()
    wanted = (rows[1].position, updated.display_message.change)
    got = answer.ok().opened
    answer.expect((got.last_position, got.last_change) == wanted, f"counters {wanted}")


@cases.case("SaveMessageRequest.message: required.")
async def message_is_required(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    request = pb.SaveMessageRequest(context=owned.context(), items=[text_item()])
    answer = await session.call(SAVE_MESSAGE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("Message.message_id: `[!-~]{1,256}`; `BadRequest` names the field.")
async def message_id_is_checked(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for message_id in ("", "two words", "m" * 257):
        request = owned.save_request([text_item()])
        request.context.CopyFrom(owned.context())
        request.message.message_id = message_id
        answer = await session.call(SAVE_MESSAGE, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        answer.expect(
            "message.message_id" in answer.bad_fields,
            "a BadRequest detail that names message.message_id",
            f"BadRequest fields {list(answer.bad_fields)}",
        )


@cases.case("DisplayItem.type: required; unspecified is invalid in requests.")
async def item_type_is_required(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    item = text_item()
    item.ClearField("type")
    answer = await owned.save(item)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("DisplayItem.content: required.")
async def item_content_is_required(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    item = text_item()
    item.ClearField("content")
    answer = await owned.save(item)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("UpdateToolStatusRequest: message_id, call_id and status are required.")
async def update_is_checked(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    whole = pb.UpdateToolStatusRequest(
        context=owned.context(),
        message_id="message-1",
        call_id="call-1",
        status=display_pb2.TOOL_STATUS_EXECUTING,
    )
    for field in ("message_id", "call_id", "status"):
        request = pb.UpdateToolStatusRequest()
        request.CopyFrom(whole)
        request.ClearField(field)
        answer = await session.call(UPDATE_TOOL_STATUS, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "INVALID_ARGUMENT / SCOPE_REQUIRED: the scope is unset; nothing is stored under a guess."
)
async def scope_is_required(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    request = owned.save_request([text_item()])
    request.context.CopyFrom(owned.context())
    request.context.ClearField("scope")
    answer = await session.call(SAVE_MESSAGE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "SCOPE_REQUIRED")


@cases.case("CallContext.conversation_id: required where scope is, `[!-~]{1,256}`.")
async def conversation_id_is_checked(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for conversation_id in ("", "two words", "c" * 257):
        request = owned.save_request([text_item()])
        request.context.CopyFrom(owned.context())
        request.context.conversation_id = conversation_id
        answer = await session.call(SAVE_MESSAGE, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
