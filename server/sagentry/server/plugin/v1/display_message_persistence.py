"""Display message persistence: the port `DisplayStore` over `DisplayMessagePersistenceService`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.server.domain.display import (
    ConversationCounters,
    DisplayMessage,
    DisplayPage,
    ListOrder,
)
from sagentry.server.domain.writes import WriteOutcome
from sagentry.server.errors import PartialWriteError, PluginError, StaleEpochError
from sagentry.server.plugin.binding import Binding, ContractViolation
from sagentry.server.plugin.v1.context import (
    REQUEST_OVERHEAD_BYTES,
    context_to_pb,
    outcome_unset,
)
from sagentry.server.plugin.v1.display_writes import (
    Response,
    read_outcome,
    read_response,
    read_row,
    write_to_pb,
)
from sagentry.server.ports import DisplayStoreCapabilities, PluginCall, WriteRequest
from sagentry.server.wire.fields import EnumTable

LIST_ORDERS = EnumTable(ListOrder, pb.ListOrder, "LIST_ORDER_")

MAX_WRITES = 256
"""Most writes of one group."""

_WRITE_OVERHEAD_BYTES = 16

_METHODS: dict[str, tuple[str, type[Response]]] = {
    "save_message": ("SaveMessage", pb.SaveMessageResponse),
    "update_tool_status": ("UpdateToolStatus", pb.UpdateToolStatusResponse),
    "resolve_tool_result": ("ResolveToolResult", pb.ResolveToolResultResponse),
    "save_synthetic_message": ("SaveSyntheticMessage", pb.SaveSyntheticMessageResponse),
}

# The whole group fails for one write of it; these would fail each of its writes as well.
_FAILURES_OF_ALL = {"PLUGIN_UNAVAILABLE", "PLUGIN_TIMEOUT", "SCOPE_DENIED", "STALE_EPOCH"}

_Prepared = tuple[WriteRequest, pb.Write]


class DisplayMessagePersistence:
    """Keeps display messages in a plugin."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.plugin = binding.plugin

    @property
    def capabilities(self) -> DisplayStoreCapabilities:
        """What the attached plugin declared."""
        declared = set(self._binding.declared.display_message_persistence.capabilities)
        prefix = "DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_"

        def has(name: str) -> bool:
            return pb.DisplayMessagePersistenceCapability.Value(prefix + name) in declared

        return DisplayStoreCapabilities(
            fencing=has("FENCING"),
            resolve_tool_result=has("RESOLVE_TOOL_RESULT"),
            save_synthetic=has("SAVE_SYNTHETIC_MESSAGE"),
            list_rows=has("LIST_DISPLAY_MESSAGES"),
            apply_writes=has("APPLY_WRITES"),
            delete_conversation=has("DELETE_CONVERSATION"),
        )

    async def open(self, call: PluginCall) -> ConversationCounters:
        """Opens the conversation for the call's epoch; zeros without fencing."""
        if not self.capabilities.fencing:
            return ConversationCounters()

        def read(response: pb.OpenConversationResponse) -> ConversationCounters:
            if response.WhichOneof("outcome") != "opened":
                raise outcome_unset()
            opened = response.opened
            if opened.last_position < 0 or opened.last_change < 0:
                raise ContractViolation("opened has a counter below 0")
            return ConversationCounters(opened.last_position, opened.last_change)

        request = pb.OpenConversationRequest(context=context_to_pb(call))
        return await self._binding.invoke(
            "OpenConversation", request, pb.OpenConversationResponse, read, timeout=call.timeout
        )

    async def apply(
        self, call: PluginCall, writes: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        """Does the writes in order; see the port."""
        outcomes: list[WriteOutcome] = []
        try:
            for group in self._groups(writes):
                if len(group) == 1:
                    outcomes.append(await self._apply_one(call, group[0]))
                else:
                    await self._apply_group(call, group, outcomes)
        except PluginError as error:
            raise PartialWriteError(outcomes, error) from error
        return outcomes

    def _groups(self, writes: Sequence[WriteRequest]) -> Iterator[list[_Prepared]]:
        """Cuts writes into groups that the plugin takes; without ApplyWrites each is one."""
        most = MAX_WRITES if self.capabilities.apply_writes else 1
        room = self._binding.identity.max_request_bytes - REQUEST_OVERHEAD_BYTES
        group: list[_Prepared] = []
        size = 0
        for write in writes:
            message = write_to_pb(write.write)
            message_size = message.ByteSize() + _WRITE_OVERHEAD_BYTES
            if group and (len(group) == most or size + message_size > room):
                yield group
                group, size = [], 0
            group.append((write, message))
            size += message_size
        if group:
            yield group

    async def _apply_one(self, call: PluginCall, prepared: _Prepared) -> WriteOutcome:
        write, message = prepared
        arm = message.WhichOneof("write")
        assert arm is not None  # noqa: S101 - write_to_pb sets one
        method, response_type = _METHODS[arm]
        request = getattr(message, arm)
        request.context.CopyFrom(context_to_pb(replace(call, request_id=write.request_id)))

        def read(response: Response) -> WriteOutcome:
            return read_response(response, write.write, call)

        return await self._binding.invoke(
            method, request, response_type, read, timeout=call.timeout
        )

    async def _apply_group(
        self, call: PluginCall, group: list[_Prepared], outcomes: list[WriteOutcome]
    ) -> None:
        """Does a group; its outcomes are added as far as they come."""
        first, _message = group[0]
        group_call = replace(call, request_id=first.request_id)
        request = pb.ApplyWritesRequest(
            context=call_context_pb2.CallContext(request_id=call.request_id),
            groups=[
                pb.WriteGroup(
                    context=context_to_pb(group_call), writes=[message for _write, message in group]
                )
            ],
        )

        def read(response: pb.ApplyWritesResponse) -> list[WriteOutcome] | pb.WriteGroupError:
            return _read_group(response, group, group_call)

        result = await self._binding.invoke(
            "ApplyWrites", request, pb.ApplyWritesResponse, read, timeout=call.timeout
        )
        if not isinstance(result, pb.WriteGroupError):
            outcomes.extend(result)
            return
        failure = self._failure(result)
        if isinstance(failure, StaleEpochError) or failure.reason in _FAILURES_OF_ALL:
            raise failure
        # One of the writes is refused and the group does not say which: one by one it shows.
        for prepared in group:
            outcomes.append(await self._apply_one(call, prepared))  # noqa: PERF401 - kept on failure

    def _failure(self, error: pb.WriteGroupError) -> PluginError:
        return self._binding.failure(
            "ApplyWrites",
            code=error.code,
            reason=error.reason,
            message=error.message,
            facts={fact.key: fact.value for fact in error.facts},
        )

    async def list_rows(
        self, call: PluginCall, *, order: ListOrder, after: int | None, page_size: int
    ) -> DisplayPage:
        """Lists rows."""
        request = pb.ListDisplayMessagesRequest(
            context=context_to_pb(call),
            order=LIST_ORDERS.to_pb(order),
            after=after,
            page_size=page_size,
        )

        def read(response: pb.ListDisplayMessagesResponse) -> DisplayPage:
            if response.WhichOneof("outcome") != "page":
                raise outcome_unset()
            rows = tuple(
                read_row(row, call, f"page.display_messages[{index}]")
                for index, row in enumerate(response.page.display_messages)
            )
            _check_order(rows, order, after)
            return DisplayPage(rows, has_more=response.page.has_more and bool(rows))

        return await self._binding.invoke(
            "ListDisplayMessages",
            request,
            pb.ListDisplayMessagesResponse,
            read,
            timeout=call.timeout,
        )


def _read_group(
    response: pb.ApplyWritesResponse, group: Sequence[_Prepared], call: PluginCall
) -> list[WriteOutcome] | pb.WriteGroupError:
    if response.WhichOneof("outcome") != "applied":
        raise outcome_unset()
    if len(response.applied.results) != 1:
        raise ContractViolation("applied.results has not one result for each group")
    result = response.applied.results[0]
    if result.request_id != call.request_id:
        raise ContractViolation("applied.results[0].request_id is not the one of the group")
    match result.WhichOneof("outcome"):
        case "error":
            if result.error.code == 0:
                raise ContractViolation("applied.results[0].error.code is 0")
            return result.error
        case "outcomes":
            if len(result.outcomes.outcomes) != len(group):
                raise ContractViolation("applied.results[0] has not one outcome for each write")
            pairs = zip(result.outcomes.outcomes, group, strict=True)
            return [read_outcome(outcome, write.write, call) for outcome, (write, _) in pairs]
        case _:
            raise outcome_unset()


def _check_order(rows: Sequence[DisplayMessage], order: ListOrder, after: int | None) -> None:
    """Refuses a page that would make a reader go in circles."""
    sign = -1 if order is ListOrder.POSITION_DESCENDING else 1
    before = after
    for row in rows:
        place = row.change if order is ListOrder.CHANGE_ASCENDING else row.position
        if before is not None and sign * place <= sign * before:
            raise ContractViolation("page.display_messages is not in the order that was asked for")
        before = place
