"""Stopping, and what meets an agent that stops or starts: nobody waits for ever, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sagentry.server.agent.work import AgentStoppingError
from sagentry.server.domain.commands import (
    AddMessage,
    AgentOptions,
    CancelRun,
    GetRun,
    StartAgent,
    StartRun,
    StopAgent,
)
from sagentry.server.domain.events import AgentStopped
from sagentry.server.domain.messages import Document, Message, Role
from sagentry.server.domain.models import EndChunk, StopKind, TextChunk
from sagentry.server.domain.runs import AgentStatus, RunEnd
from sagentry.server.domain.state import StartOptions
from sagentry.server.errors import InvalidInputError, LimitExceededError, UnavailableError
from sagentry.server.ports import Accepted, PluginCall
from tests.support.agent_world import SCOPE, FakeModel, World, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)

STOP = StopAgent(SCOPE, "a")


class SlowPreprocessor:
    """Looks at a message for as long as its gate is closed."""

    plugin = "looker"

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.looking = asyncio.Event()
        self.looking_at_eight = asyncio.Event()
        self.calls: list[PluginCall] = []

    async def preprocess(
        self,
        call: PluginCall,
        message: Message,
        *,
        tool_context: Document | None,
        messages: Sequence[Message],
    ) -> Accepted:
        del tool_context, messages
        self.calls.append(call)
        self.looking.set()
        if len(self.calls) == 8:
            self.looking_at_eight.set()
        await self.gate.passing()
        return Accepted(message, message)


def later(world: World, text: str, request_id: str) -> asyncio.Task[object]:
    """Adds a message in a task of its own."""
    return asyncio.get_running_loop().create_task(
        world.registry.add_message(world.message(text, request_id))
    )


async def end_of(world: World, run_id: str) -> RunEnd | None:
    return (await world.registry.get_run(GetRun(SCOPE, "a", run_id, FOREVER))).run.end


async def within_reason(*tasks: asyncio.Task[object]) -> None:
    async with asyncio.timeout(20):
        await asyncio.wait(tasks)


async def test_a_stop_whose_caller_goes_away_stops_the_agent_all_the_same() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("x"), gate, EndChunk(StopKind.STOP)], say("ok"))
    async with World(model=model) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        stopping = asyncio.get_running_loop().create_task(
            world.registry.stop_agent(StopAgent(SCOPE, "a", finish_run=True))
        )
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({stopping})
        adding = asyncio.get_running_loop().create_task(
            world.registry.add_message(world.message("again", "r2"))
        )
        gate.open()
        await within_reason(adding)
        reply = adding.result()

        assert world.trace.words.count("P persist on_shutdown") == 1
        assert await end_of(world, reply.run_id) is RunEnd.COMPLETED


async def test_two_stops_at_once_stop_the_agent_once() -> None:
    async with World() as world:
        await world.registry.start_agent(StartAgent(SCOPE, "a"))
        both = await asyncio.gather(
            world.registry.stop_agent(STOP), world.registry.stop_agent(STOP)
        )

        assert [reply.stopped for reply in both] == [True, True]
        assert len(world.logs["a"].bodies(AgentStopped)) == 1
        assert world.trace.words.count("P persist on_shutdown") == 1


async def test_a_stop_that_meets_a_message_on_its_way_to_the_disk_ends_its_run() -> None:
    async with World() as world:
        await world.registry.start_agent(StartAgent(SCOPE, "a"))
        world.journal.hold()
        adding = later(world, "Hi", "r1")
        await world.journal.until_held()
        stopping = asyncio.get_running_loop().create_task(world.registry.stop_agent(STOP))
        await asyncio.sleep(0)
        world.journal.release()
        await within_reason(adding, stopping)
        reply = await world.registry.add_message(world.message("Hi", "r1"))

        assert reply.replayed
        assert await end_of(world, reply.run_id) is RunEnd.CANCELLED
        assert world.trace.words.count("E RunEnded cancelled") == 1


async def test_a_cancel_that_meets_a_run_which_the_disk_refuses_is_answered() -> None:
    async with World() as world:
        await world.registry.start_agent(StartAgent(SCOPE, "a"))
        world.journal.hold()
        adding = later(world, "Hi", "r1")
        await world.journal.until_held()
        cancelling = asyncio.get_running_loop().create_task(
            world.registry.cancel_run(CancelRun(SCOPE, "a"))
        )
        await asyncio.sleep(0)
        world.journal.failure = LimitExceededError("JOURNAL_FULL", "full", limit=1, actual=1)
        world.journal.release()
        await within_reason(adding, cancelling)
        world.journal.failure = None
        reply = await world.registry.add_message(world.message("Hi", "r2"))

        assert isinstance(adding.exception(), LimitExceededError)
        assert await end_of(world, reply.run_id) is RunEnd.COMPLETED


async def test_a_stop_does_not_wait_for_the_preprocessor_and_the_message_wakes_the_agent() -> None:
    preprocessor = SlowPreprocessor(Gate(is_open=False))
    async with World(preprocessor=preprocessor) as world:
        adding = later(world, "Hi", "r1")
        await preprocessor.looking.wait()
        await world.registry.stop_agent(STOP)
        preprocessor.gate.open()
        await within_reason(adding)
        reply = await world.registry.add_message(world.message("Hi", "r1"))

        assert await end_of(world, reply.run_id) is RunEnd.COMPLETED
        assert len(preprocessor.calls) == 2
        assert [m.text() for m in world.state().messages if m.role is Role.USER] == ["Hi"]


async def test_a_message_behind_eight_others_has_only_the_time_that_its_caller_has_left() -> None:
    preprocessor = SlowPreprocessor(Gate(is_open=False))
    async with World(preprocessor=preprocessor) as world:
        await world.registry.start_agent(StartAgent(SCOPE, "a"))
        others = [later(world, "Hi", f"r{number}") for number in range(8)]
        limits = (timedelta(seconds=3), timedelta(seconds=1))
        late = [
            asyncio.get_running_loop().create_task(
                world.registry.add_message(
                    AddMessage(
                        SCOPE,
                        "a",
                        f"late{limit}",
                        world.message("late", "x").message,
                        timeout=limit,
                    )
                )
            )
            for limit in limits
        ]
        await preprocessor.looking_at_eight.wait()
        world.clock.seconds += 2
        preprocessor.gate.open()
        await within_reason(*others, *late)

        assert late[0].exception() is None
        assert getattr(late[1].exception(), "reason", "") == "PLUGIN_TIMEOUT"
        assert [call.timeout for call in preprocessor.calls[8:]] == [timedelta(seconds=1)]


async def test_what_is_accepted_while_stopping_is_in_what_is_saved() -> None:
    """A released conversation may be claimed by another server: nothing may be in our journal only."""
    async with World() as world:
        await world.registry.start_agent(StartAgent(SCOPE, "a"))
        world.journal.hold()
        command = world.message("held", "r1")
        holding = AddMessage(SCOPE, "a", "r1", command.message, hold=True)
        adding = asyncio.get_running_loop().create_task(world.registry.add_message(holding))
        await world.journal.until_held()
        stopping = asyncio.get_running_loop().create_task(world.registry.stop_agent(STOP))
        await asyncio.sleep(0)
        world.journal.release()
        await within_reason(adding, stopping)

        assert "held" in world.states.base["a"][0]
        assert world.journal.entries == {}


async def test_closing_drops_an_agent_that_is_just_starting() -> None:
    world = World()
    await world.__aenter__()
    world.states.load_gate.close()
    starting = asyncio.get_running_loop().create_task(
        world.registry.start_agent(StartAgent(SCOPE, "a"))
    )
    await world.states.loading.wait()
    async with asyncio.timeout(20):
        await world.__aexit__()
    await within_reason(starting)

    assert getattr(starting.exception(), "reason", "") == "SERVER_DRAINING"


async def test_closing_wakes_nothing_that_it_has_stopped() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("x"), gate, EndChunk(StopKind.STOP)])
    world = World(model=model)
    await world.__aenter__()
    await world.registry.start_agent(StartAgent(SCOPE, "quick"))
    await world.registry.add_message(world.message("Hi", "r1"))
    await world.trace.until_word("E MessageStarted")
    closing = asyncio.get_running_loop().create_task(world.registry.close(FOREVER))
    await world.trace.until_word("P persist on_shutdown")
    with pytest.raises(UnavailableError) as caught:
        await world.registry.add_message(world.message("late", "r2", agent_id="quick"))
    gate.open()
    async with asyncio.timeout(20):
        await closing
        await world.__aexit__()

    assert caught.value.reason == "SERVER_DRAINING"


async def test_who_waits_for_a_start_does_not_fail_for_the_options_of_another() -> None:
    world = World()
    await world.__aenter__()
    world.states.load_gate.close()
    wrong = AgentOptions(options=StartOptions(profile="unknown"))
    loop = asyncio.get_running_loop()
    first = loop.create_task(world.registry.start_agent(StartAgent(SCOPE, "a", options=wrong)))
    await world.states.loading.wait()
    second = loop.create_task(world.registry.start_agent(StartAgent(SCOPE, "a")))
    await asyncio.sleep(0)
    world.states.load_gate.open()
    await within_reason(first, second)

    assert isinstance(first.exception(), InvalidInputError)
    assert second.result().started
    await world.__aexit__()


async def test_a_stop_that_meets_a_starting_agent_stops_it() -> None:
    async with World() as world:
        world.states.load_gate.close()
        loop = asyncio.get_running_loop()
        starting = loop.create_task(world.registry.start_agent(StartAgent(SCOPE, "a")))
        await world.states.loading.wait()
        stopping = loop.create_task(world.registry.stop_agent(STOP))
        await asyncio.sleep(0)
        world.states.load_gate.open()
        await within_reason(starting, stopping)

        assert stopping.result().stopped


async def test_who_waits_for_a_run_goes_on_waiting_when_its_agent_sleeps_and_wakes() -> None:
    """The run was promised to a queued message and begins in the agent's next life."""
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("x"), gate, EndChunk(StopKind.STOP)], say("second"))
    async with World(model=model) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        queued = await world.registry.add_message(world.message("more", "r2"))
        waiting = asyncio.get_running_loop().create_task(
            world.registry.get_run(GetRun(SCOPE, "a", queued.run_id, FOREVER))
        )
        stopping = asyncio.get_running_loop().create_task(
            world.registry.stop_agent(StopAgent(SCOPE, "a", finish_run=True))
        )
        await asyncio.sleep(0)
        gate.open()
        await within_reason(waiting, stopping)

        assert waiting.result().run.end is RunEnd.COMPLETED


async def test_a_run_that_was_started_and_had_not_begun_begins_after_the_crash() -> None:
    world = World(model=FakeModel(say("late")))
    await world.__aenter__()
    await world.registry.start_agent(StartAgent(SCOPE, "a"))
    world.journal.refuses = lambda records: any("HeldDelivered" in r.payload for r in records)
    world.journal.hold()
    starting = asyncio.get_running_loop().create_task(
        world.registry.start_run(StartRun(SCOPE, "a", "s1"))
    )
    await world.journal.until_held()
    world.journal.release()
    world.journal.hold()
    await within_reason(starting)
    world.journal.crash()
    after = await world.crash_and_restart()
    world.journal.refuses = lambda _records: False

    assert await end_of(after, starting.result().run_id) is RunEnd.COMPLETED
    await after.__aexit__()


async def test_what_was_queued_behind_a_cancelled_run_stays_held_when_the_agent_wakes() -> None:
    model = FakeModel([TextChunk("x"), Gate(is_open=False)], say("ok"))
    async with World(model=model) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        await world.registry.add_message(world.message("more", "r2"))
        await world.registry.cancel_run(CancelRun(SCOPE, "a"))
        await world.registry.stop_agent(STOP)
        woken = await world.registry.start_agent(StartAgent(SCOPE, "a"))

        assert (woken.agent.status, woken.agent.held_messages) == (AgentStatus.CANCELLED, 1)
        assert len(model.requests) == 1


async def test_one_agent_whose_start_breaks_does_not_end_the_server() -> None:
    world = World(settle_timeout=timedelta(0))
    world.display.gate.close()
    await world.__aenter__()
    await world.registry.add_message(world.message("Hi", "r1"))
    world.display.gate.open()
    world.states.load_fault = RuntimeError("bug")
    after = await world.crash_and_restart()
    await world.states.loading.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    world.states.load_fault = None
    reply = await after.registry.add_message(after.message("Hi", "r2", agent_id="b"))

    assert reply.run_id
    await after.__aexit__()


@pytest.mark.parametrize("rounds", range(6))
async def test_who_waits_for_work_of_an_agent_that_ends_by_a_fault_is_told(rounds: int) -> None:
    """Also when the work had not begun, and when the agent's tasks are ending already."""
    world = World()
    await world.__aenter__()
    await world.registry.start_agent(StartAgent(SCOPE, "a"))
    agent = world.agent()

    async def work() -> None:
        await asyncio.Event().wait()

    world.kill()
    for _ in range(rounds):
        await asyncio.sleep(0)
    with pytest.raises(AgentStoppingError):
        async with asyncio.timeout(20):
            await agent.work.own(work())
