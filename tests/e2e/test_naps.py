"""A real agent that nobody uses sleeps, as the configuration says, and wakes with all it knew."""

from __future__ import annotations

import asyncio

import pytest

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.client import ScopedClient
from tests.support.real_server import ended, real_server, state, texts

pytestmark = pytest.mark.timeout(120)


async def until_asleep(scope: ScopedClient) -> pb.StopReason.ValueType:
    """Follows the agent until it sleeps; returns why it does."""
    async with scope.follow("a") as following:
        async for item in following:
            if isinstance(item, pb.Event) and item.HasField("agent_stopped"):
                return item.agent_stopped.reason
    raise AssertionError


async def test_an_unused_agent_sleeps_and_wakes_with_the_next_message() -> None:
    script = [{"repeat": True, "steps": [{"text": "ok"}]}]
    profile = {"model": "script:script.yaml", "inactivity_timeout": "1s"}
    async with real_server(script) as server:
        profile["model"] = f"script:{server.folder}/script.yaml"
        server.configure(lambda settings: settings.update(profiles={"default": profile}))
        scope = await server.start()
        async with asyncio.TaskGroup() as group:
            sleeping = group.create_task(until_asleep(scope))
            reply = await scope.add_message("a", "one")
            await ended(scope, reply.run_id)
        awake_then = await scope.touch_agent("a")
        reply = await scope.add_message("a", "two")
        await ended(scope, reply.run_id)
        said = texts(await state(scope), "user")

    assert sleeping.result() == pb.STOP_REASON_INACTIVITY
    assert not awake_then
    assert said == ["one", "two"]
