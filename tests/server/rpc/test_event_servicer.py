from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.agent.v1 import event_service_pb2_grpc as pb_grpc
from sagentry.api.type.v1 import scope_pb2
from sagentry.server.domain.commands import SubscribeEvents
from sagentry.server.domain.events import EventKind, LagPolicy, StreamEndReason
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from tests.support.events import publish
from tests.support.fake_agents import FakeAgents
from tests.support.servers import received, served

pytestmark = pytest.mark.anyio

SCOPE_PB = scope_pb2.Scope(scoped=scope_pb2.Scoped(tenant="acme"))
SCOPE = Scope(ScopeKey(ScopeKind.SCOPED, "acme"))


def request(**fields) -> pb.SubscribeEventsRequest:
    return pb.SubscribeEventsRequest(**{"scope": SCOPE_PB, "agent_id": "order-17", **fields})


async def test_a_stream_of_encoded_responses_is_read_like_any_other():
    directory = FakeAgents()
    async with served(agents=directory) as running:
        stub = pb_grpc.EventServiceStub(running.channel)
        call = stub.SubscribeEvents(request())
        responses = aiter(call)

        first = await anext(responses)
        publish(directory.log, "hello")
        second = await anext(responses)
        directory.log.end(StreamEndReason.DRAINING, reconnect=True)
        third = await anext(responses)
        rest = [response async for response in responses]
        code = await call.code()

    assert [item.WhichOneof("item") for item in first.items] == ["snapshot", "caught_up"]
    assert second.items[0].event.title_changed.title == "hello"
    assert second.last_sequence == 1
    assert third.items[0].end.reconnect
    assert rest == []
    assert code is grpc.StatusCode.OK


async def test_all_that_a_reader_asks_for_reaches_the_directory():
    directory = FakeAgents()
    encoded = directory.log.respond([], index=0, sequence=0)
    cursor = pb.SubscribeEventsResponse.FromString(encoded).cursor
    asked = request(
        from_cursor=cursor,
        kinds=[pb.EVENT_KIND_RUN, pb.EVENT_KIND_DELTA],
        debug=True,
        policy=pb.LAG_POLICY_DISCONNECT,
        viewer=pb.Viewer(viewer_id="alice"),
        wake=True,
    )
    async with served(agents=directory) as running:
        call = pb_grpc.EventServiceStub(running.channel).SubscribeEvents(asked)
        await anext(aiter(call))
        call.cancel()

    assert directory.commands == [
        SubscribeEvents(
            SCOPE,
            "order-17",
            cursor,
            frozenset({EventKind.RUN, EventKind.DELTA}),
            debug=True,
            policy=LagPolicy.DISCONNECT,
            viewer_id="alice",
            wake=True,
        )
    ]


async def test_a_reader_that_leaves_is_let_go_at_once():
    directory = FakeAgents()
    closed = asyncio.Event()
    directory.on_close = closed.set
    async with served(agents=directory) as running:
        call = pb_grpc.EventServiceStub(running.channel).SubscribeEvents(request())
        await anext(aiter(call))
        call.cancel()

        await closed.wait()

    assert directory.log.readers == 0


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"scope": None}, "SCOPE_REQUIRED", "scope"),
        ({"agent_id": ""}, "FIELD_INVALID", "agent_id"),
        ({"kinds": [1, 0]}, "FIELD_INVALID", "kinds[1]"),
        ({"policy": 9}, "FIELD_INVALID", "policy"),
        ({"viewer": pb.Viewer()}, "FIELD_INVALID", "viewer.viewer_id"),
        ({"from_cursor": "x"}, "CURSOR_INVALID", "from_cursor"),
    ],
)
async def test_a_subscription_with_a_mistake_is_refused(fields, reason, field):
    async with served(agents=FakeAgents()) as running:
        call = pb_grpc.EventServiceStub(running.channel).SubscribeEvents(request(**fields))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(call))

    error = received(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.info.reason, error.info.metadata["field"]) == (reason, field)
