"""Lists of agents that keep up by themselves, who looks at an agent, and how many streams one may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from sagentry.api.agent.v1 import agent_pb2, event_service_pb2_grpc
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import scope_pb2
from sagentry.client import Client, LimitExceededError
from tests.support.real_server import RealServer, ended, real_server

pytestmark = pytest.mark.timeout(120)

SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"last_user_text": "wait"},
        "repeat": True,
        "steps": [{"text": "I "}, {"wait_for": "go"}, {"text": "end"}],
    },
    {"repeat": True, "steps": [{"text": "ok"}]},
]


class List:
    """A list of live agents as a dashboard keeps it.

    Attributes:
        agents: The agents by id.
        gone: Why agents went.
        is_caught_up: Whether all that were live have been seen.
        end: Why the stream ended.
    """

    def __init__(self, server: RealServer, tenant: str = "acme") -> None:
        self.agents: dict[str, pb.AgentSummary] = {}
        self.gone: dict[str, int] = {}
        self.is_caught_up = False
        self.end: pb.StreamEnd | None = None
        self._channel = grpc.aio.insecure_channel(server.address)
        request = pb.WatchAgentsRequest(
            scope=scope_pb2.Scope(scoped=scope_pb2.Scoped(tenant=tenant))
        )
        stub = event_service_pb2_grpc.EventServiceStub(self._channel)
        self._call = stub.WatchAgents(request)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Reads on until something is so."""
        async with asyncio.timeout(30):
            while not condition():
                response = await self._call.read()
                assert isinstance(response, pb.WatchAgentsResponse)
                for item in response.items:
                    self._take(item)

    def _take(self, item: pb.WatchItem) -> None:
        match item.WhichOneof("item"):
            case "agent":
                self.agents[item.agent.agent_id] = item.agent
            case "gone":
                del self.agents[item.gone.agent_id]
                self.gone[item.gone.agent_id] = item.gone.reason
            case "caught_up":
                self.is_caught_up = True
            case "end":
                self.end = item.end

    async def close(self) -> None:
        await self._channel.close()


async def test_a_list_shows_what_is_live_and_keeps_up() -> None:
    async with real_server(SCRIPT) as server:
        scope = await server.start()
        for agent in ("a", "b"):
            await scope.start_agent(agent)
        shown, foreign = List(server), List(server, "other")
        await shown.until(lambda: shown.is_caught_up)
        await foreign.until(lambda: foreign.is_caught_up)
        at_first = sorted(shown.agents)

        await scope.start_agent("c")
        await shown.until(lambda: "c" in shown.agents)
        reply = await scope.add_message("a", "wait")
        running = agent_pb2.AGENT_STATUS_RUNNING
        await shown.until(lambda: shown.agents["a"].status == running)
        run_id = shown.agents["a"].run_id
        server.touch("go")
        await ended(scope, reply.run_id)
        idle = agent_pb2.AGENT_STATUS_IDLE
        # The row of the user and that of the answer.
        await shown.until(
            lambda: shown.agents["a"].status == idle and shown.agents["a"].last_change == 2
        )
        await scope.stop_agent("b")
        await shown.until(lambda: "b" in shown.gone)
        others = dict(foreign.agents)
        await shown.close()
        await foreign.close()

    assert at_first == ["a", "b"]
    assert run_id == reply.run_id
    assert sorted(shown.agents) == ["a", "c"]
    assert shown.gone == {"b": pb.STOP_REASON_REQUESTED}
    assert others == {}


async def test_viewers_are_counted_once_each_and_only_while_they_look() -> None:
    async with real_server(SCRIPT) as server:
        scope = await server.start()
        await scope.start_agent("a")
        shown = List(server)
        await shown.until(lambda: shown.is_caught_up)

        def viewers() -> list[str]:
            return [one.viewer_id for one in shown.agents["a"].viewers]

        async with scope.subscribe("a", viewer_id="ada") as first:
            await anext(first)
            async with (
                scope.subscribe("a", viewer_id="ada") as second,
                scope.subscribe("a", viewer_id="ben") as third,
                scope.subscribe("a") as nobody,
            ):
                for stream in (second, third, nobody):
                    await anext(stream)
                await shown.until(lambda: viewers() == ["ada", "ben"])
                counted = (await scope.get_agent("a")).viewers
            await shown.until(lambda: viewers() == ["ada"])
        await shown.until(lambda: viewers() == [])
        await shown.close()

    assert counted == 2


async def test_one_stream_too_many_is_refused_at_once_and_a_closed_one_makes_room() -> None:
    async with real_server(SCRIPT, more={"limits": {"streams_per_caller": 2}}) as server:
        scope = await server.start()
        shown = List(server)
        await shown.until(lambda: shown.is_caught_up)
        async with scope.subscribe("a") as open_one:
            await anext(open_one)
            async with scope.subscribe("a") as refused:
                with pytest.raises(LimitExceededError) as caught:
                    await anext(refused)
        await shown.close()
        async with asyncio.timeout(30), Client.connect(server.address) as client:
            again = client.scope("acme")
            while True:
                try:
                    async with again.subscribe("a") as stream:
                        await anext(stream)
                        break
                except LimitExceededError:
                    # The server has not seen yet that the others are gone.
                    await asyncio.sleep(0.02)

    assert caught.value.reason == "TOO_MANY_SUBSCRIPTIONS"
    assert (caught.value.metadata["limit"], caught.value.metadata["actual"]) == ("2", "2")


async def test_a_list_ends_with_a_reason_when_the_server_does() -> None:
    async with real_server(SCRIPT) as server:
        await server.start()
        shown = List(server)
        await shown.until(lambda: shown.is_caught_up)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(shown.until(lambda: shown.end is not None))
            stopping = tasks.create_task(server.stop())
        await shown.close()

    assert shown.end is not None
    assert (shown.end.reason, shown.end.reconnect) == (pb.STREAM_END_REASON_DRAINING, True)
    assert stopping.result() == 0
