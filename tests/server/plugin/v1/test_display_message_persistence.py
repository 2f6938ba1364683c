# ruff: noqa: N802 - method names are the contract's
from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2_grpc as pb_grpc
from sagentry.api.type.v1 import display_pb2
from sagentry.server.domain.display import (
    ConversationCounters,
    DisplayItem,
    DisplayMessageType,
    ListOrder,
    TextContent,
    TextKind,
    ToolInfo,
    ToolResultContent,
    ToolStatus,
)
from sagentry.server.domain.writes import (
    ResolveToolResult,
    RowMissing,
    RowsSaved,
    RowUpdated,
    SaveMessage,
    SaveSynthetic,
    UpdateToolStatus,
)
from sagentry.server.errors import PartialWriteError, PluginError, StaleEpochError
from sagentry.server.plugin.v1.display_message_persistence import DisplayMessagePersistence
from sagentry.server.ports import DisplayStoreCapabilities, WriteRequest
from tests.support.binding import CALL, bound
from tests.support.events import message

pytestmark = pytest.mark.anyio

SERVICE = "sagentry.api.plugin.v1.DisplayMessagePersistenceService"
APPLY = ("ADVERTISED", "APPLY_WRITES")


def row(position: int, message_id: str = "m-1", **fields: Any) -> display_pb2.DisplayMessage:
    facts = {
        "display_message_id": f"d-{position}",
        "position": position,
        "change": position,
        "message_id": message_id,
        "tenant": "acme",
        "partition": "u-1",
        "conversation_id": "c-1",
    }
    return display_pb2.DisplayMessage(**{**facts, **fields})


class Store(pb_grpc.DisplayMessagePersistenceServiceServicer):
    """A small store: one row a message; a message_id of `refused` or `gone` fails."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.answers: dict[str, Any] = {}
        self.group_error: pb.WriteGroupError | None = None

    async def SaveMessage(self, request: Any, context: Any) -> Any:
        if "SaveMessage" in self.answers:
            return self.answers["SaveMessage"]
        message_id = request.message.message_id
        if message_id == "refused":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        if message_id == "gone":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "OVERLOADED")
        return self._save(message_id)

    def _save(self, message_id: str) -> pb.SaveMessageResponse:
        self.saved.append(message_id)
        saved = row(len(self.saved), message_id)
        return pb.SaveMessageResponse(saved=pb.MessageSaved(display_messages=[saved]))

    async def UpdateToolStatus(self, request: Any, _context: Any) -> Any:
        if "UpdateToolStatus" in self.answers:
            return self.answers["UpdateToolStatus"]
        if request.call_id == "unknown":
            return pb.UpdateToolStatusResponse(no_match=pb.DisplayMessageNoMatch())
        updated = pb.DisplayMessageUpdated(display_message=row(1, request.message_id))
        return pb.UpdateToolStatusResponse(updated=updated)

    async def ResolveToolResult(self, request: Any, _context: Any) -> Any:
        if "ResolveToolResult" in self.answers:
            return self.answers["ResolveToolResult"]
        updated = pb.DisplayMessageUpdated(display_message=row(1, request.message_id))
        return pb.ResolveToolResultResponse(updated=updated)

    async def SaveSyntheticMessage(self, request: Any, _context: Any) -> Any:
        if "SaveSyntheticMessage" in self.answers:
            return self.answers["SaveSyntheticMessage"]
        saved = pb.SyntheticMessageSaved(display_message=row(1, request.message_id))
        return pb.SaveSyntheticMessageResponse(saved=saved)

    async def ApplyWrites(self, request: Any, context: Any) -> Any:
        if "ApplyWrites" in self.answers:
            return self.answers["ApplyWrites"]
        [group] = request.groups
        result = pb.WriteGroupResult(request_id=group.context.request_id)
        ids = [write.save_message.message.message_id for write in group.writes]
        if self.group_error is not None:
            result.error.CopyFrom(self.group_error)
        elif "gone" in ids:
            result.error.CopyFrom(pb.WriteGroupError(code=14, reason="OVERLOADED"))
        elif "refused" in ids:
            result.error.CopyFrom(pb.WriteGroupError(code=8, reason="QUOTA_EXCEEDED"))
        else:
            for write in group.writes:
                outcome = result.outcomes.outcomes.add()
                arm = write.WhichOneof("write")
                if arm == "save_message":
                    saved = self._save(write.save_message.message.message_id)
                    outcome.save_message.CopyFrom(saved)
                else:
                    answer = await getattr(self, _NAMES[arm])(getattr(write, arm), context)
                    getattr(outcome, arm).CopyFrom(answer)
        return pb.ApplyWritesResponse(applied=pb.WritesApplied(results=[result]))

    async def OpenConversation(self, _request: Any, _context: Any) -> Any:
        return self.answers["OpenConversation"]

    async def DeleteConversation(self, _request: Any, _context: Any) -> Any:
        raise AssertionError

    async def ListDisplayMessages(self, _request: Any, _context: Any) -> Any:
        return self.answers["ListDisplayMessages"]


_NAMES = {
    "update_tool_status": "UpdateToolStatus",
    "resolve_tool_result": "ResolveToolResult",
    "save_synthetic_message": "SaveSyntheticMessage",
}


@asynccontextmanager
async def store_with(*capabilities: str, **answers: Any) -> Any:
    servicer = Store()
    servicer.answers = answers
    async with bound(
        pb_grpc.add_DisplayMessagePersistenceServiceServicer_to_server, servicer, SERVICE
    ) as binding:
        prefix = "DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_"
        binding.declared.display_message_persistence.capabilities.extend(
            pb.DisplayMessagePersistenceCapability.Value(prefix + name) for name in capabilities
        )
        yield DisplayMessagePersistence(binding), binding, servicer


def saves(*ids: str, text: str = "hi") -> list[WriteRequest]:
    return [WriteRequest(f"w-{one}", SaveMessage(message(text, one), ())) for one in ids]


def saved_ids(error: PartialWriteError) -> list[str]:
    saved = [one for one in error.outcomes if isinstance(one, RowsSaved)]
    assert len(saved) == len(error.outcomes)
    return [one.rows[0].message_id for one in saved]


ITEM = DisplayItem(0, DisplayMessageType.ASSISTANT, TextContent(TextKind.TEXT, "hi"))
ALL_KINDS = [
    WriteRequest("w-1", SaveMessage(message(), (ITEM,))),
    WriteRequest("w-2", UpdateToolStatus("m-1", "c", ToolStatus.FAILED, ToolInfo(error="e"))),
    WriteRequest("w-3", UpdateToolStatus("m-1", "unknown", ToolStatus.FAILED, ToolInfo())),
    WriteRequest("w-4", ResolveToolResult("m-1", "c", ToolResultContent("c", "n", "t"))),
    WriteRequest("w-5", SaveSynthetic("m-9", ITEM)),
]


@pytest.mark.parametrize(
    ("capabilities", "methods"),
    [
        (
            ("ADVERTISED",),
            ["SaveMessage", "UpdateToolStatus", "UpdateToolStatus", "ResolveToolResult",
             "SaveSyntheticMessage"],
        ),
        (APPLY, ["ApplyWrites"]),
    ],
)  # fmt: skip
async def test_writes_are_done_in_order_one_by_one_or_together(capabilities, methods):
    async with store_with(*capabilities) as (store, binding, _servicer):
        outcomes = await store.apply(CALL, ALL_KINDS)

    assert binding.methods == methods
    assert [type(outcome) for outcome in outcomes] == [
        RowsSaved, RowUpdated, RowMissing, RowUpdated, RowsSaved,
    ]  # fmt: skip
    assert outcomes[0].rows[0].encoded == row(1).SerializeToString()
    assert outcomes[4].rows[0].message_id == "m-9"


async def test_a_call_of_its_own_has_the_context_and_the_writes_identity():
    async with store_with() as (store, binding, _servicer):
        await store.apply(CALL, ALL_KINDS[1:2])

    [request] = binding.requests
    assert request.context.request_id == "w-2"
    assert request.context.owner_epoch == 7
    assert request.context.scope.scoped.payload == b"token"
    assert request.status == display_pb2.TOOL_STATUS_FAILED
    assert request.tool_info == display_pb2.ToolInfo(error="e")


async def test_a_group_has_one_context_and_its_writes_have_none():
    async with store_with(*APPLY) as (store, binding, _servicer):
        await store.apply(CALL, ALL_KINDS)

    [request] = binding.requests
    [group] = request.groups
    assert request.context == call_context_pb2.CallContext(request_id="q-1")
    assert (group.context.request_id, group.context.owner_epoch) == ("w-1", 7)
    assert not group.writes[0].save_message.HasField("context")


async def test_nothing_to_write_is_no_call():
    async with store_with(*APPLY) as (store, binding, _servicer):
        assert await store.apply(CALL, []) == []

    assert binding.methods == []


async def test_groups_hold_at_most_256_writes():
    async with store_with(*APPLY) as (store, binding, servicer):
        ids = [f"m-{number}" for number in range(600)]
        outcomes = await store.apply(CALL, saves(*ids))

    assert [len(request.groups[0].writes) for request in binding.requests] == [256, 256, 88]
    assert servicer.saved == ids
    assert len(outcomes) == 600


async def test_groups_fit_into_what_the_plugin_takes():
    async with store_with(*APPLY) as (store, binding, servicer):
        binding.identity = replace(binding.identity, max_request_bytes=100_000)
        await store.apply(CALL, saves("a", "b", "c", "d", "e", text="x" * 30_000))

    assert [request.ByteSize() < 100_000 for request in binding.requests] == [True] * 3
    assert servicer.saved == ["a", "b", "c", "d", "e"]


async def test_without_apply_writes_the_first_failure_ends_it():
    async with store_with() as (store, _binding, servicer):
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "refused", "b"))

    assert saved_ids(caught.value) == ["a"]
    assert caught.value.failure.reason == "PLUGIN_REFUSED"
    assert servicer.saved == ["a"]


async def test_a_group_that_is_refused_is_done_one_by_one_to_find_the_write_at_fault():
    async with store_with(*APPLY) as (store, binding, servicer):
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "refused", "b"))

    assert binding.methods == ["ApplyWrites", "SaveMessage", "SaveMessage"]
    assert saved_ids(caught.value) == ["a"]
    assert caught.value.failure.reason == "PLUGIN_REFUSED"
    assert servicer.saved == ["a"]


async def test_a_group_that_fails_for_the_moment_is_not_taken_apart():
    async with store_with(*APPLY) as (store, binding, _servicer):
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "gone"))

    assert binding.methods == ["ApplyWrites"]
    assert caught.value.outcomes == ()
    assert caught.value.failure.reason == "PLUGIN_UNAVAILABLE"


async def test_what_went_before_a_failing_group_is_done():
    async with store_with(*APPLY) as (store, binding, _servicer):
        binding.identity = replace(binding.identity, max_request_bytes=100_000)
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "b", "gone", "c", text="x" * 30_000))

    assert len(caught.value.outcomes) == 2


async def test_a_lost_conversation_is_told_from_other_failures():
    async with store_with(*APPLY) as (store, binding, servicer):
        servicer.group_error = pb.WriteGroupError(
            code=9,
            reason="STALE_EPOCH",
            message="epoch 7 is stale",
            facts=[pb.ErrorFact(key="current_epoch", value="8")],
        )
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "b"))

    assert binding.methods == ["ApplyWrites"]
    assert isinstance(caught.value.failure, StaleEpochError)
    assert caught.value.failure.facts == {"current_epoch": "8"}


def saved(*rows: display_pb2.DisplayMessage) -> pb.SaveMessageResponse:
    return pb.SaveMessageResponse(saved=pb.MessageSaved(display_messages=rows))


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        (pb.SaveMessageResponse(), "outcome is unset"),
        (saved(row(1, tenant="other")), r"saved.display_messages\[0\].tenant"),
        (saved(row(1), row(2, partition="")), r"saved.display_messages\[1\].partition"),
        (saved(row(1, conversation_id="c-2")), "conversation_id"),
        (saved(row(1, message_id="m-2")), "message_id is not the one"),
        (saved(row(0)), r"saved.display_messages\[0\].position"),
    ],
)
async def test_rows_that_break_the_contract_are_a_fault(answer, violation):
    async with store_with(SaveMessage=answer) as (store, _binding, _servicer):
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("m-1"))

    assert caught.value.failure.reason == "PLUGIN_FAULT"
    with pytest.raises(PluginError, match=violation):
        raise caught.value.failure


@pytest.mark.parametrize(
    ("write", "answer"),
    [
        (ALL_KINDS[1], {"UpdateToolStatus": pb.UpdateToolStatusResponse()}),
        (ALL_KINDS[3], {"ResolveToolResult": pb.ResolveToolResultResponse()}),
        (ALL_KINDS[4], {"SaveSyntheticMessage": pb.SaveSyntheticMessageResponse()}),
    ],
)
async def test_a_write_without_outcome_is_a_fault(write, answer):
    async with store_with(**answer) as (store, _binding, _servicer):
        with pytest.raises(PartialWriteError, match="outcome is unset"):
            await store.apply(CALL, [write])


def applied(*results: pb.WriteGroupResult) -> pb.ApplyWritesResponse:
    return pb.ApplyWritesResponse(applied=pb.WritesApplied(results=results))


def outcomes(*outcomes: pb.WriteOutcome) -> pb.WriteGroupResult:
    return pb.WriteGroupResult(request_id="w-a", outcomes=pb.WriteOutcomes(outcomes=outcomes))


UPDATED = pb.WriteOutcome(
    update_tool_status=pb.UpdateToolStatusResponse(no_match=pb.DisplayMessageNoMatch())
)


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        (pb.ApplyWritesResponse(), "outcome is unset"),
        (applied(), "one result for each group"),
        (applied(pb.WriteGroupResult(request_id="w-a")), "outcome is unset"),
        (applied(pb.WriteGroupResult(request_id="other")), "request_id"),
        (
            applied(pb.WriteGroupResult(request_id="w-a", error=pb.WriteGroupError())),
            "error.code is 0",
        ),
        (applied(outcomes()), "one outcome for each write"),
        (applied(outcomes(UPDATED, UPDATED)), "not of the kind of its write"),
        (applied(outcomes(pb.WriteOutcome(), pb.WriteOutcome())), "not of the kind"),
    ],
)
async def test_a_group_whose_answer_breaks_the_contract_is_a_fault(answer, violation):
    async with store_with(*APPLY, ApplyWrites=answer) as (store, _binding, _servicer):
        with pytest.raises(PartialWriteError) as caught:
            await store.apply(CALL, saves("a", "b"))

    assert caught.value.outcomes == ()
    with pytest.raises(PluginError, match=violation):
        raise caught.value.failure


async def test_a_conversation_is_opened_for_an_epoch():
    answer = pb.OpenConversationResponse(
        opened=pb.ConversationOpened(last_position=3, last_change=9)
    )
    async with store_with("FENCING", OpenConversation=answer) as (store, binding, _servicer):
        counters = await store.open(CALL)

    assert counters == ConversationCounters(3, 9)
    assert binding.requests[0].context.owner_epoch == 7


async def test_without_fencing_nothing_is_opened():
    async with store_with() as (store, binding, _servicer):
        assert await store.open(CALL) == ConversationCounters()

    assert binding.methods == []


@pytest.mark.parametrize(
    "answer",
    [
        pb.OpenConversationResponse(),
        pb.OpenConversationResponse(opened=pb.ConversationOpened(last_change=-1)),
    ],
)
async def test_counters_that_make_no_sense_are_a_fault(answer):
    async with store_with("FENCING", OpenConversation=answer) as (store, _binding, _servicer):
        with pytest.raises(PluginError) as caught:
            await store.open(CALL)

    assert caught.value.reason == "PLUGIN_FAULT"


def page(*rows: display_pb2.DisplayMessage, has_more: bool = False) -> Any:
    return pb.ListDisplayMessagesResponse(
        page=pb.DisplayMessagePage(display_messages=rows, has_more=has_more)
    )


async def test_rows_are_listed():
    answer = page(row(3), row(5), has_more=True)
    async with store_with(ListDisplayMessages=answer) as (store, binding, _servicer):
        listed = await store.list_rows(
            CALL, order=ListOrder.POSITION_ASCENDING, after=2, page_size=2
        )

    [request] = binding.requests
    assert (request.order, request.after, request.page_size) == (
        pb.LIST_ORDER_POSITION_ASCENDING, 2, 2,
    )  # fmt: skip
    assert [one.position for one in listed.rows] == [3, 5]
    assert listed.has_more


async def test_a_list_from_its_begin_has_no_place():
    async with store_with(ListDisplayMessages=page()) as (store, binding, _servicer):
        listed = await store.list_rows(
            CALL, order=ListOrder.CHANGE_ASCENDING, after=None, page_size=2
        )

    assert not binding.requests[0].HasField("after")
    assert listed.rows == ()


@pytest.mark.parametrize(
    ("order", "after", "answer"),
    [
        (ListOrder.POSITION_ASCENDING, 3, page(row(3))),
        (ListOrder.POSITION_ASCENDING, None, page(row(3), row(2))),
        (ListOrder.POSITION_DESCENDING, 3, page(row(4))),
        (ListOrder.CHANGE_ASCENDING, None, page(row(1, change=2), row(2, change=2))),
        (ListOrder.CHANGE_ASCENDING, None, page(row(1, tenant="other"))),
        (ListOrder.CHANGE_ASCENDING, None, pb.ListDisplayMessagesResponse()),
    ],
)
async def test_a_page_that_is_not_what_was_asked_for_is_a_fault(order, after, answer):
    async with store_with(ListDisplayMessages=answer) as (store, _binding, _servicer):
        with pytest.raises(PluginError) as caught:
            await store.list_rows(CALL, order=order, after=after, page_size=2)

    assert caught.value.reason == "PLUGIN_FAULT"


async def test_an_empty_page_has_no_successor():
    async with store_with(ListDisplayMessages=page(has_more=True)) as (store, _binding, _):
        listed = await store.list_rows(
            CALL, order=ListOrder.CHANGE_ASCENDING, after=None, page_size=2
        )

    assert not listed.has_more


async def test_what_a_plugin_declared_is_known():
    async with store_with("FENCING", "LIST_DISPLAY_MESSAGES") as (store, _binding, _servicer):
        assert store.capabilities == DisplayStoreCapabilities(fencing=True, list_rows=True)
