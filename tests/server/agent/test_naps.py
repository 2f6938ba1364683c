"""Agents that nobody uses sleep, and never at the wrong moment: else memory fills up, or work is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sagentry.server.agent.absent import NoPreprocessor
from sagentry.server.domain.commands import GetRun, StartAgent, SubscribeEvents
from sagentry.server.domain.events import AgentStopped
from sagentry.server.domain.messages import Document, Message
from sagentry.server.domain.models import EndChunk, ModelCallError, StopKind, TextChunk
from sagentry.server.domain.runs import RunEnd, StopReason
from sagentry.server.domain.scope import AgentKey
from sagentry.server.errors import LimitExceededError, PluginError
from sagentry.server.ports import Accepted, PluginCall
from tests.support.agent_world import SCOPE, FakeModel, World, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
FOREVER = timedelta(seconds=30)


async def talk(world: World, agent_id: str = "a") -> RunEnd | None:
    """One whole run."""
    reply = await world.registry.add_message(world.message("Hi", f"r-{agent_id}", agent_id))
    run = await world.registry.get_run(GetRun(SCOPE, agent_id, reply.run_id, FOREVER))
    await resting(world, agent_id)
    return run.run.end


async def resting(world: World, agent_id: str = "a") -> None:
    async with asyncio.timeout(20):
        while not world.agent(agent_id).is_resting:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)


def is_live(world: World, agent_id: str = "a") -> bool:
    return world.registry.live_agent(AgentKey(SCOPE.key, agent_id)) is not None


async def asleep(world: World, agent_id: str = "a") -> StopReason:
    """Waits until the agent sleeps; returns why."""
    async with asyncio.timeout(20):
        while is_live(world, agent_id):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    (stopped,) = world.logs[agent_id].bodies(AgentStopped)
    assert isinstance(stopped, AgentStopped)
    return stopped.reason


class Held(NoPreprocessor):
    """A preprocessor that takes its time."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def preprocess(
        self,
        _call: PluginCall,
        message: Message,
        *,
        tool_context: Document | None,
        messages: Sequence[Message],
    ) -> Accepted:
        del tool_context, messages
        await self.gate.passing()
        return Accepted(display=message, llm=message)


async def a_while() -> None:
    """Lets everything happen that is due."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_an_unused_agent_sleeps_and_a_message_wakes_it_with_its_history() -> None:
    async with World(inactivity_timeout=MINUTE) as world:
        await talk(world)
        world.clock.advance(59)
        await a_while()
        assert is_live(world)

        world.clock.advance(2)
        assert await asleep(world) is StopReason.INACTIVITY

        await world.registry.add_message(world.message("And now?", "r2"))
        assert [one.text() for one in world.state().messages][:3] == ["Hi", "ok", "And now?"]


async def test_a_run_that_takes_longer_than_any_timeout_is_not_cut() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("long"), gate, TextChunk(" work"), EndChunk(StopKind.STOP)])
    async with World(model=model, inactivity_timeout=MINUTE, unwatched_timeout=MINUTE) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        for _ in range(10):
            world.clock.advance(61)
            await a_while()
        gate.open()
        run = await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))

        assert run.run.end is RunEnd.COMPLETED
        assert world.state().messages[-1].text() == "long work"
        # From its end, not from its beginning.
        await resting(world)
        world.clock.advance(59)
        await a_while()
        assert is_live(world)
        world.clock.advance(61)
        await asleep(world)


async def test_a_message_on_its_way_keeps_the_agent_awake() -> None:
    gate = Gate()
    async with World(inactivity_timeout=MINUTE, preprocessor=Held(gate)) as world:
        await talk(world)
        gate.close()
        adding = asyncio.get_running_loop().create_task(
            world.registry.add_message(world.message("Slow preprocessor", "r2"))
        )
        await a_while()
        world.clock.advance(600)
        await a_while()
        assert is_live(world)
        gate.open()

        assert (await adding).run_id


async def test_touching_keeps_an_agent_awake_and_wakes_none() -> None:
    async with World(inactivity_timeout=MINUTE) as world:
        await talk(world)
        for _ in range(5):
            world.clock.advance(50)
            await a_while()
            assert world.registry.touch_agent(SCOPE, "a")
        assert is_live(world)

        world.clock.advance(61)
        await asleep(world)

        assert not world.registry.touch_agent(SCOPE, "a")
        assert not is_live(world)


async def test_an_agent_whose_store_is_away_stays_awake() -> None:
    """Asleep it could not be woken: a start needs the store."""
    async with World(inactivity_timeout=MINUTE, settle_timeout=timedelta(0)) as world:
        world.states.failure = PluginError(
            "PLUGIN_UNAVAILABLE",
            "away",
            plugin="states",
            method="PersistState",
            elapsed=timedelta(0),
            budget=timedelta(seconds=3),
        )
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))
        for _ in range(5):
            world.clock.advance(61)
            await a_while()
        assert is_live(world)

        world.states.failure = None
        world.clock.advance(61)
        await resting(world)
        world.clock.advance(61)
        assert await asleep(world) is StopReason.INACTIVITY


async def test_an_idle_agent_that_nobody_looks_at_sleeps_sooner() -> None:
    async with World(inactivity_timeout=60 * MINUTE, unwatched_timeout=MINUTE) as world:
        looking = await world.registry.subscribe(SubscribeEvents(SCOPE, "a", viewer_id="ann"))
        await talk(world)
        for _ in range(5):
            world.clock.advance(61)
            await a_while()
        assert is_live(world)

        looking.close()
        world.clock.advance(30)
        await a_while()
        assert is_live(world)
        world.clock.advance(61)
        assert await asleep(world) is StopReason.NO_VIEWERS


async def test_an_agent_in_error_is_not_put_away_unseen() -> None:
    model = FakeModel([ModelCallError("MODEL_OVERLOADED", "busy")])
    async with World(
        model=model, inactivity_timeout=60 * MINUTE, unwatched_timeout=MINUTE
    ) as world:
        assert await talk(world) is RunEnd.ERROR
        for _ in range(5):
            world.clock.advance(61)
            await a_while()

        assert is_live(world)


async def test_a_full_server_puts_the_longest_unused_agent_to_sleep_for_a_new_one() -> None:
    """A server whose agents all rest must not refuse people."""
    gate = Gate(is_open=False)
    async with World(most_agents=3, model=FakeModel(say("one"), say("two"), [gate])) as world:
        await talk(world, "resting")
        world.clock.advance(1)
        followed = await world.registry.subscribe(SubscribeEvents(SCOPE, "followed"))
        await talk(world, "followed")
        await world.registry.add_message(world.message("Hi", "r", "running"))

        await world.registry.start_agent(StartAgent(SCOPE, "new"))
        assert [is_live(world, name) for name in ("resting", "followed", "running")] == [
            False,
            True,
            True,
        ]

        await world.registry.start_agent(StartAgent(SCOPE, "newer"))
        assert not is_live(world, "new")

        await world.registry.add_message(world.message("Hi", "r", "newer"))
        with pytest.raises(LimitExceededError):
            await world.registry.start_agent(StartAgent(SCOPE, "newest"))
        followed.close()
        await world.registry.start_agent(StartAgent(SCOPE, "newest"))
        assert not is_live(world, "followed")


async def test_messages_that_meet_a_nap_are_all_answered() -> None:
    async with World(inactivity_timeout=MINUTE) as world:
        for number in range(20):
            await talk_again(world, number)


async def talk_again(world: World, number: int) -> None:
    """A message that is sent while the agent is just falling asleep."""
    first = await world.registry.add_message(world.message(f"{number}", f"first-{number}"))
    await world.registry.get_run(GetRun(SCOPE, "a", first.run_id, FOREVER))
    await resting(world)
    world.clock.advance(61)
    for _ in range(number):
        await asyncio.sleep(0)
    reply = await world.registry.add_message(world.message(f"{number} again", f"second-{number}"))
    run = await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))

    assert run.run.end is RunEnd.COMPLETED
    assert [one.text() for one in world.state().messages if one.text().startswith(f"{number} ")]
