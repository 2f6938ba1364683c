"""A run can be held between two steps and goes on later, across restarts: the original's dead end.

Nothing of it is done twice, nothing is forgotten, and messages that come meanwhile keep their order.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from sagentry.server.domain.commands import GetRun, PauseRun, ResumeAgent, StartAgent, StartRun
from sagentry.server.domain.events import RunEnded, RunStarted, StatusChanged
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunPhase
from sagentry.server.domain.scope import AgentKey
from sagentry.server.errors import ConflictError, InvalidStateError, NotFoundError
from tests.support.agent_world import SCOPE, FakeModel, FakeTool, World, ask, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=30)


def pause(request_id: str = "p1", run_id: str = "", reason: str = "lunch") -> PauseRun:
    return PauseRun(SCOPE, "a", request_id, run_id, reason)


def resume(request_id: str = "go") -> ResumeAgent:
    return ResumeAgent(SCOPE, "a", request_id)


async def outcome(world: World, run_id: str) -> Run:
    return (await world.registry.get_run(GetRun(SCOPE, "a", run_id, FOREVER))).run


def in_a_tool(*later: object, max_turns: int = 10) -> tuple[World, FakeTool]:
    """A world whose first run waits in a tool."""
    tool = FakeTool("one", Gate(is_open=False))
    model = FakeModel(ask("one"), *later)  # type: ignore[arg-type]
    return World(model=model, tools={"one": tool}, max_turns=max_turns), tool


async def paused(world: World, tool: FakeTool) -> str:
    """Pauses the run that waits in the tool; returns its id."""
    reply = await world.registry.add_message(world.message("Hi", "r1"))
    await tool.gate.reached.wait()
    await world.registry.pause_run(pause())
    tool.gate.open()
    assert (await outcome(world, reply.run_id)).end is RunEnd.PAUSED
    return reply.run_id


async def test_the_step_under_way_finishes_and_the_run_goes_on_where_it_was() -> None:
    world, tool = in_a_tool(say("done"))
    async with world:
        run_id = await paused(world, tool)
        view = world.agent().view()
        before = list(world.model.requests)
        reply = await world.registry.get_run(GetRun(SCOPE, "a", run_id, FOREVER))
        resumed = await world.registry.resume_agent(resume())
        run = await outcome(world, run_id)

        assert (view.status, view.pause_reason, reply.phase) == (
            AgentStatus.PAUSED,
            "lunch",
            RunPhase.PAUSED,
        )
        assert len(before) == 1
        assert (resumed.run_id, run.end, run.turns) == (run_id, RunEnd.COMPLETED, 2)
        assert len(tool.calls) == 1
        assert world.state().messages[-1].text() == "done"
        log = world.logs["a"]
        starts = [body.resumed for body in log.bodies(RunStarted) if isinstance(body, RunStarted)]
        ends = [body.end for body in log.bodies(RunEnded) if isinstance(body, RunEnded)]
        assert (starts, ends) == ([False, True], [RunEnd.PAUSED, RunEnd.COMPLETED])
        assert StatusChanged(AgentStatus.PAUSED, None, "lunch") in log.bodies(StatusChanged)


async def test_a_paused_run_survives_a_crash_and_is_resumed_by_whoever_wakes_the_agent() -> None:
    world, tool = in_a_tool(say("done"))
    await world.__aenter__()
    run_id = await paused(world, tool)
    after = await world.crash_and_restart()
    stored = await after.registry.get_agent(SCOPE, "a")
    resumed = await after.registry.resume_agent(resume())
    run = await outcome(after, run_id)

    assert stored.pause_reason == "lunch"
    assert (resumed.run_id, run.end) == (run_id, RunEnd.COMPLETED)
    assert len(tool.calls) == 1
    await after.__aexit__()


async def test_a_message_that_was_queued_is_read_behind_the_resumed_run() -> None:
    world, tool = in_a_tool(say("done"), say("and that too"))
    async with world:
        first = await world.registry.add_message(world.message("Hi", "r1"))
        await tool.gate.reached.wait()
        second = await world.registry.add_message(world.message("Also that", "r2"))
        await world.registry.pause_run(pause())
        tool.gate.open()
        await outcome(world, first.run_id)
        assert world.agent().view().held_messages == 1
        await world.registry.resume_agent(resume())
        run = await outcome(world, second.run_id)

        assert run.end is RunEnd.COMPLETED
        assert [one.text() for one in world.state().messages if one.text()] == [
            "Hi",
            "done",
            "Also that",
            "and that too",
        ]


async def test_a_new_message_leaves_the_paused_run_behind() -> None:
    world, tool = in_a_tool(say("something else"))
    async with world:
        run_id = await paused(world, tool)
        reply = await world.registry.add_message(world.message("Forget it", "r2"))
        run = await outcome(world, reply.run_id)

        assert reply.run_id != run_id
        assert run.end is RunEnd.COMPLETED
        with pytest.raises(InvalidStateError) as refused:
            await world.registry.resume_agent(resume())
        assert refused.value.metadata["status"] == "idle"
        assert refused.value.metadata["allowed"] == "paused"


async def test_a_pause_is_for_one_run_and_taken_once() -> None:
    world, tool = in_a_tool(say("done"))
    async with world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await tool.gate.reached.wait()
        other = await world.registry.pause_run(pause("p0", "run-of-yesterday"))
        first = await world.registry.pause_run(pause())
        again = await world.registry.pause_run(pause())
        with pytest.raises(ConflictError):
            await world.registry.pause_run(pause(reason="dinner"))
        tool.gate.open()

        assert (other.already_ended, first.already_ended, again.replayed) == (True, False, True)
        assert (await outcome(world, reply.run_id)).end is RunEnd.PAUSED
        late = await world.registry.pause_run(pause("p2"))
        assert late.already_ended


async def test_a_pause_in_the_last_step_comes_too_late_and_holds_up_no_later_run() -> None:
    gate = Gate(is_open=False)
    async with World(model=FakeModel([gate, *say("bye")], say("hello again"))) as world:
        first = await world.registry.add_message(world.message("Hi", "r1"))
        await gate.reached.wait()
        await world.registry.pause_run(pause())
        gate.open()

        assert (await outcome(world, first.run_id)).end is RunEnd.COMPLETED
        second = await world.registry.add_message(world.message("Still there?", "r2"))
        assert (await outcome(world, second.run_id)).end is RunEnd.COMPLETED


async def test_a_cancel_counts_more_than_a_pause() -> None:
    world, tool = in_a_tool(say("done"))
    async with world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await tool.gate.reached.wait()
        await world.registry.pause_run(pause())
        world.agent().cancel_run()

        assert (await outcome(world, reply.run_id)).end is RunEnd.CANCELLED
        with pytest.raises(InvalidStateError):
            await world.registry.resume_agent(resume())


async def test_pausing_gives_a_run_no_more_turns() -> None:
    world, tool = in_a_tool(ask("one"), ask("one"), max_turns=2)
    async with world:
        run_id = await paused(world, tool)
        await world.registry.resume_agent(resume())
        run = await outcome(world, run_id)

        assert (run.end, run.turns) == (RunEnd.ERROR, 2)
        assert run.error is not None
        assert run.error.reason == "TURN_LIMIT"


async def test_start_run_goes_on_as_well_and_both_do_it_once() -> None:
    world, tool = in_a_tool(say("done"))
    async with world:
        run_id = await paused(world, tool)
        started = await world.registry.start_run(StartRun(SCOPE, "a", "s1"))
        assert (await outcome(world, run_id)).end is RunEnd.COMPLETED
        again = await world.registry.start_run(StartRun(SCOPE, "a", "s1"))

        assert started.run_id == run_id
        assert (again.run_id, again.replayed) == (run_id, True)
        assert len(world.model.requests) == 2


async def test_there_is_nothing_to_resume_where_there_is_no_agent() -> None:
    async with World() as world:
        with pytest.raises(NotFoundError):
            await world.registry.resume_agent(resume())
        with pytest.raises(NotFoundError):
            await world.registry.pause_run(pause())
        assert world.registry.live_agent(world_key()) is None


def world_key() -> AgentKey:
    return AgentKey(SCOPE.key, "a")


async def test_a_server_that_restarts_leaves_a_paused_agent_paused() -> None:
    """Also when somebody wrote meanwhile: who paused it decides when it goes on."""
    world, tool = in_a_tool(say("never"))
    await world.__aenter__()
    first = await world.registry.add_message(world.message("Hi", "r1"))
    await tool.gate.reached.wait()
    await world.registry.add_message(world.message("Also that", "r2"))
    await world.registry.pause_run(pause())
    tool.gate.open()
    await outcome(world, first.run_id)
    after = await world.crash_and_restart()
    await after.registry.start_agent(StartAgent(SCOPE, "a"))
    view = after.agent().view()

    assert (view.status, view.held_messages, view.run_id) == (AgentStatus.PAUSED, 1, "")
    await after.__aexit__()


async def test_a_resume_that_was_answered_happens_although_the_server_died_before_it_began() -> (
    None
):
    world, tool = in_a_tool(say("done"))
    await world.__aenter__()
    run_id = await paused(world, tool)
    original = world.journal.append

    def refuse_run_begin(*args: object, **kwargs: object) -> None:
        records = args[2]
        if not any('"begun":true' in record.payload.replace(" ", "") for record in records):  # type: ignore[attr-defined]
            original(*args, **kwargs)  # type: ignore[arg-type]

    world.journal.append = refuse_run_begin  # type: ignore[method-assign]
    await world.registry.resume_agent(resume())
    world.journal.append = original  # type: ignore[method-assign]
    assert len(world.model.requests) == 1
    after = await world.crash_and_restart()
    await after.trace.until_word("E RunEnded completed")
    again = await after.registry.resume_agent(resume())

    assert (await outcome(after, run_id)).end is RunEnd.COMPLETED
    assert (again.run_id, again.replayed) == (run_id, True)
    assert len(tool.calls) == 1
    await after.__aexit__()
