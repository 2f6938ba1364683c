"""The event service. SubscribeEvents streams bytes that are encoded already."""
# ruff: noqa: N802 - method names are the contract's

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any, TypeAlias

import grpc
import grpc.aio

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain.commands import SubscribeEvents
from sagentry.server.ports import AgentDirectory
from sagentry.server.rpc.agent_requests import agent
from sagentry.server.rpc.caller import current_caller
from sagentry.server.rpc.convert import EVENT_KINDS, lag_policy_from_pb, viewer_from_pb
from sagentry.server.rpc.names import EVENT, EVENT_SERVICE
from sagentry.server.rpc.not_yet import answers_not_yet
from sagentry.server.rpc.stream_slots import StreamSlots
from sagentry.server.rpc.watch_items import watch_response
from sagentry.server.wire.scope import scope_from_pb

# Any: what is written to the context is bytes or a message, by method.
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@answers_not_yet(EVENT)
class EventServicer:
    """Translates; the events come from the directory."""

    def __init__(self, directory: AgentDirectory, *, streams_per_caller: int) -> None:
        self._directory = directory
        self._slots = StreamSlots(streams_per_caller)

    async def SubscribeEvents(
        self, request: pb.SubscribeEventsRequest, _context: _Context
    ) -> AsyncIterator[bytes]:
        """Follows one agent; yields encoded responses."""
        command = subscribe_from_pb(request)
        with (
            self._slots.taken(current_caller().name),
            closing(await self._directory.subscribe(command)) as source,
        ):
            while (response := await source.next_batch()) is not None:
                yield response

    async def WatchAgents(
        self, request: pb.WatchAgentsRequest, _context: _Context
    ) -> AsyncIterator[pb.WatchAgentsResponse]:
        """Follows the live agents of a scope."""
        scope = scope_from_pb(request.scope)
        with (
            self._slots.taken(current_caller().name),
            closing(self._directory.watch(scope)) as source,
        ):
            while (batch := await source.next_batch()) is not None:
                yield watch_response(batch)


def subscribe_from_pb(request: pb.SubscribeEventsRequest) -> SubscribeEvents:
    """Returns the command of a SubscribeEvents.

    Raises:
        InvalidInputError: A field is missing, malformed or over its limit.
    """
    scope, agent_id = agent(request)
    return SubscribeEvents(
        scope=scope,
        agent_id=agent_id,
        cursor=request.from_cursor if request.HasField("from_cursor") else None,
        kinds=frozenset(
            EVENT_KINDS.require(kind, f"kinds[{index}]") for index, kind in enumerate(request.kinds)
        ),
        debug=request.debug,
        policy=lag_policy_from_pb(request.policy),
        viewer_id=viewer_from_pb(request),
        wake=request.wake,
    )


def add_event_service(server: grpc.aio.Server, servicer: object) -> None:
    """Adds the service to a server that is not started.

    By hand, as the generated registration would serialize responses: they are bytes here.
    """
    # Any: completed by answers_not_yet, which a type checker cannot know.
    methods: Any = servicer
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "SubscribeEvents": grpc.unary_stream_rpc_method_handler(
            methods.SubscribeEvents,
            request_deserializer=pb.SubscribeEventsRequest.FromString,
            response_serializer=None,
        ),
        "WatchAgents": grpc.unary_stream_rpc_method_handler(
            methods.WatchAgents,
            request_deserializer=pb.WatchAgentsRequest.FromString,
            response_serializer=pb.WatchAgentsResponse.SerializeToString,
        ),
    }
    generic = grpc.method_handlers_generic_handler(EVENT_SERVICE, handlers)
    server.add_generic_rpc_handlers((generic,))
    server.add_registered_method_handlers(EVENT_SERVICE, handlers)
