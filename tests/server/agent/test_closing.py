"""A server that shuts down ends, whatever its agents are doing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sagentry.server.domain.commands import StartAgent
from sagentry.server.errors import UnavailableError
from tests.support.agent_world import SCOPE, World

pytestmark = pytest.mark.anyio

START = StartAgent(SCOPE, "a", "r-1")
NO_TIME = timedelta(0)


async def turns() -> None:
    """Lets everybody else go as far as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_nobody_wakes_an_agent_that_is_being_stopped_for_good() -> None:
    """It lived on then, and the server never ended."""
    async with World() as world, asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        await world.registry.start_agent(START)
        world.states.gate.close()
        tasks.create_task(world.registry.close(NO_TIME))
        await turns()

        async def wake() -> None:
            with pytest.raises(UnavailableError, match="shutting down"):
                await world.registry.start_agent(START)

        tasks.create_task(wake())
        await turns()
        world.states.gate.open()


async def test_an_agent_that_is_just_starting_does_not_keep_the_server() -> None:
    world = World()
    ready = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        # Ends only when no agent lives any more.
        tasks.create_task(world.registry.serve(ready))
        await ready.wait()
        world.states.gate.close()
        tasks.create_task(attempt(world))
        await turns()
        tasks.create_task(world.registry.close(NO_TIME))
        await turns()
        world.states.gate.open()


async def attempt(world: World) -> None:
    """Starts an agent; that it cannot be had any more is no failure."""
    try:
        await world.registry.start_agent(START)
    except UnavailableError:
        return
