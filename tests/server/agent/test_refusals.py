"""A disk that refuses in the middle, and faults of our own: one end per run, and a state that folds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from sagentry.server.domain.commands import AddMessageReply, GetRun
from sagentry.server.domain.display import ToolStatus
from sagentry.server.domain.events import MessageTruncated, RunEnded
from sagentry.server.domain.messages import Message, MessageStatus, Role, ToolCall
from sagentry.server.domain.models import ModelCallError, TextChunk
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd
from sagentry.server.domain.tools import ToolOutcome
from sagentry.server.errors import LimitExceededError
from sagentry.server.model.history import history_problem
from sagentry.server.model_ports import Tool, ToolContext
from tests.support.agent_world import SCOPE, FakeModel, FakeTool, World, ask, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)

FULL = LimitExceededError("JOURNAL_FULL", "full", limit=1, actual=1)


async def run_of(world: World, reply: AddMessageReply) -> Run:
    return (await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))).run


async def turn(world: World, text: str, request_id: str) -> Run:
    return await run_of(world, await world.registry.add_message(world.message(text, request_id)))


def is_valid(messages: Sequence[Message]) -> bool:
    return history_problem(messages) is None


def ends(world: World) -> list[str]:
    events = world.logs["a"].events
    return [event.run_id for event in events if isinstance(event.body, RunEnded)]


async def test_a_message_whose_beginning_the_disk_refuses_is_kept_whole_and_folds() -> None:
    """The next flush must not be written without what it builds on: no start could fold it."""
    model = FakeModel([TextChunk("x" * 5000), *say("y" * 5000)], say("ok"))
    world = World(model=model)
    await world.__aenter__()
    world.journal.refuse_once("MessageBegun")
    first = await turn(world, "Hi", "r1")
    before = world.state().messages
    after = await world.crash_and_restart()
    await after.registry.get_run(GetRun(SCOPE, "a", first.run_id))
    second = await turn(after, "more", "r2")

    assert (first.end, second.end) == (RunEnd.COMPLETED, RunEnd.COMPLETED)
    assert before[1].text() == "x" * 5000 + "y" * 5000
    assert after.state().messages[:2] == before
    await after.__aexit__()


async def test_what_a_refused_flush_had_comes_with_the_next_one() -> None:
    gate, last = Gate(is_open=False), Gate(is_open=False)
    model = FakeModel([TextChunk("first "), gate, TextChunk("second " * 1000), last])
    world = World(model=model)
    await world.__aenter__()
    await world.registry.add_message(world.message("Hi", "r1"))
    await world.journal.until_recorded("MessageBegun")
    await gate.reached.wait()
    world.journal.refuse_once("first")
    world.clock.advance(0.25)
    gate.open()
    await last.reached.wait()
    await world.clock.until_scheduled()
    world.clock.advance(0.25)
    await world.journal.until_recorded("second")
    after = await world.crash_and_restart()
    await after.trace.until_word("P persist on_error")

    cut = after.state().messages[-1]
    assert cut.text() == "first " + "second " * 1000
    await after.__aexit__()


async def test_a_run_whose_end_the_disk_refuses_is_ended_once_also_after_a_restart() -> None:
    world = World(model=FakeModel(say("one"), say("two")))
    await world.__aenter__()
    world.journal.refuse_once("end_time")
    first = await turn(world, "Hi", "r1")
    status = (await world.registry.get_agent(SCOPE, "a")).status
    await turn(world, "more", "r2")
    told = ends(world)
    after = await world.crash_and_restart()
    again = await after.registry.get_run(GetRun(SCOPE, "a", first.run_id))
    await after.trace.until_word("E AgentStarted", 1)

    assert (first.end, again.run.end, status) == (
        RunEnd.COMPLETED,
        RunEnd.COMPLETED,
        AgentStatus.IDLE,
    )
    assert told.count(first.run_id) == 1
    assert "E RunEnded lost" not in after.trace.words
    await after.__aexit__()


async def test_a_run_whose_beginning_and_end_the_disk_refuses_is_not_begun_again() -> None:
    async with World(model=FakeModel(say("two"))) as world:
        await world.registry.add_message(
            world.message("Hi", "r0")
        )  # the agent is live and has an answer
        await world.trace.until_word("E RunEnded completed")
        world.journal.refuses = lambda records: any("begun" in r.payload for r in records)
        first = await turn(world, "Hi", "r1")
        world.journal.refuses = lambda _records: False
        second = await turn(world, "more", "r2")

        assert (first.end, second.end) == (RunEnd.ERROR, RunEnd.COMPLETED)
        assert first.run_id != second.run_id
        assert ends(world).count(first.run_id) == 1
        users = [m.text() for m in world.state().messages if m.role is Role.USER]
        assert users == ["Hi", "Hi", "more"]


async def test_one_result_that_the_disk_refuses_ends_no_other_call() -> None:
    gate = Gate(is_open=False)
    quick, slow = FakeTool("quick"), FakeTool("slow", gate)
    model = FakeModel(ask("quick", "slow"), say("ok"))
    async with World(model=model, tools={"quick": quick, "slow": slow}) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        world.journal.refuse_once("quick done")
        await world.trace.until_word("P tool executing", 2)
        gate.open()
        run = await run_of(world, reply)
        results = {r.name: r.text() for m in world.state().messages for r in m.tool_results()}

        assert run.end is RunEnd.COMPLETED
        assert results == {"quick": "quick done", "slow": "slow done"}
        assert sorted(world.display.statuses.values()) == ["completed", "completed"]


async def test_calls_that_a_full_disk_left_open_are_closed_before_the_next_model_call() -> None:
    tools = {"one": FakeTool("one")}
    model = FakeModel(ask("one"), say("ok"))
    async with World(model=model, tools=tools) as world:
        world.journal.refuses = lambda records: any(
            "CallStarted" in r.payload or "ToolResult" in r.payload for r in records
        )
        first = await turn(world, "Hi", "r1")
        world.journal.refuses = lambda _records: False
        second = await turn(world, "more", "r2")
        roles = [m.role for m in world.state().messages]

        assert (first.end, second.end) == (RunEnd.ERROR, RunEnd.COMPLETED)
        assert first.error is not None
        assert first.error.reason == "JOURNAL_FULL"
        assert tools["one"].calls == []
        assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.ASSISTANT]
        assert list(world.display.statuses.values()) == [ToolStatus.FAILED.value]
        assert all(is_valid(request.messages) for request in model.requests)


async def test_an_open_tool_message_of_an_earlier_turn_is_not_given_the_results_of_a_later_one() -> (
    None
):
    """A disk that was full for a whole turn, and a crash: each result stays with its own call."""
    tools = {"one": FakeTool("one"), "two": FakeTool("two")}
    model = FakeModel(ask("one"), ask("two"), say("ok"))
    world = World(model=model, tools=tools)
    await world.__aenter__()
    world.journal.refuses = lambda records: any("one done" in r.payload for r in records)
    first = await turn(world, "Hi", "r1")
    world.journal.refuses = lambda _records: False
    await turn(world, "more", "r2")
    after = await world.crash_and_restart()
    await after.registry.get_run(GetRun(SCOPE, "a", first.run_id))
    await turn(after, "again", "r3")
    results = [
        [r.name for r in m.tool_results()] for m in after.state().messages if m.role is Role.TOOL
    ]

    assert results == [["one"], ["two"]]
    assert not after.state().growing
    await after.__aexit__()


async def test_a_fault_in_mid_message_keeps_what_was_said_and_closes_it() -> None:
    model = FakeModel([TextChunk("half"), RuntimeError("bug")], say("ok"))
    async with World(model=model) as world:
        first = await turn(world, "Hi", "r1")
        kept = world.state().messages[-1]
        second = await turn(world, "more", "r2")

        assert (first.end, second.end) == (RunEnd.ERROR, RunEnd.COMPLETED)
        assert (kept.text(), kept.status) == ("half", MessageStatus.STREAM_ERROR)
        assert not world.state().growing
        assert ends(world).count(first.run_id) == 1


async def test_a_message_whose_end_the_disk_refuses_is_closed_as_far_as_it_is_recorded() -> None:
    async with World(model=FakeModel([TextChunk("x" * 5000), *say("y")], say("ok"))) as world:
        world.journal.refuse_once("MessageFinished")
        first = await turn(world, "Hi", "r1")
        closed = world.state().messages[-1]

        assert first.end is RunEnd.ERROR
        assert closed.status is MessageStatus.STREAM_ERROR
        assert not world.state().growing
        assert len(world.logs["a"].bodies(MessageTruncated)) == 1


class BrokenExecutor:
    """An executor that breaks its contract."""

    async def run(
        self,
        call: ToolCall,
        tool: Tool | None,
        context: ToolContext,
        *,
        known: object = (),
    ) -> ToolOutcome:
        del tool, context, known
        if call.name == "broken":
            raise RuntimeError(call.name)
        return ToolOutcome("a lone \ud83d half")


async def test_an_executor_that_breaks_fails_its_call_only() -> None:
    model = FakeModel(ask("broken", "fine"), say("ok"))
    tools = {"broken": FakeTool("broken"), "fine": FakeTool("fine")}
    async with World(model=model, tools=tools, executor=BrokenExecutor()) as world:
        run = await turn(world, "Hi", "r1")
        results = [r for m in world.state().messages for r in m.tool_results()]

        assert run.end is RunEnd.COMPLETED
        assert [r.is_error for r in results] == [True, False]
        assert results[1].text() == "a lone \ufffd half"


async def test_half_a_surrogate_pair_from_a_model_becomes_a_replacement_character() -> None:
    failure = ModelCallError("MODEL_FAILED", "half \ud83d of it")
    async with World(model=FakeModel([TextChunk("a\ud83d"), failure])) as world:
        run = await turn(world, "Hi", "r1")

        assert run.error is not None
        assert run.error.message == "half \ufffd of it"
        assert world.state().messages[-1].text() == "a\ufffd"


async def test_an_event_that_cannot_be_told_leaves_the_agent_usable() -> None:
    async with World(model=FakeModel(say("one"), say("two"))) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        world.logs["a"].breaks_on = RunEnded
        first = await run_of(world, reply)
        world.logs["a"].breaks_on = None
        second = await turn(world, "more", "r2")

        assert (first.end, second.end) == (RunEnd.COMPLETED, RunEnd.COMPLETED)
