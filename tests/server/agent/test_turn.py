"""One turn of an agent: what happens, in which order, whatever the store does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sagentry.server.domain.commands import (
    AddMessageReply,
    CancelRun,
    GetRun,
    RunReply,
    StartRun,
    StopAgent,
)
from sagentry.server.domain.events import RunEnded, StatusChanged, ToolCallStep, ToolCallUpdated
from sagentry.server.domain.messages import MessageStatus, Role
from sagentry.server.domain.models import (
    EndChunk,
    StopKind,
    TextChunk,
)
from sagentry.server.domain.runs import AgentStatus, RunEnd, RunPhase
from sagentry.server.errors import (
    ConflictError,
    InvalidStateError,
    NotFoundError,
)
from tests.support.agent_world import (
    SCOPE,
    FakeModel,
    FakeTool,
    World,
    ask,
    say,
)
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)

STARTED = ["E AgentStarted", "E StatusChanged idle"]

TEXT_TURN = [
    "P save user",
    "E DisplayMessageSaved",
    "E StatusChanged running",
    "E RunStarted",
    "E MessageStarted",
    "E MessageCompleted assistant",
    "P save assistant",
    "E DisplayMessageSaved",
    "P persist on_completion",
    "E RunEnded completed",
    "E StatusChanged idle",
]

TOOL_TURN = [
    "P save user",
    "E DisplayMessageSaved",
    "E StatusChanged running",
    "E RunStarted",
    "E MessageStarted",
    "E ToolCallUpdated identified",
    "E ToolCallUpdated identified",
    "E MessageCompleted assistant",
    "P save assistant",
    "E DisplayMessageSaved",
    "E DisplayMessageSaved",
    "E DisplayMessageSaved",
    "E ToolCallUpdated executing",
    "E ToolCallUpdated executing",
    "P tool executing",
    "P tool executing",
    "E DisplayMessageUpdated",
    "E DisplayMessageUpdated",
    "E ToolCallUpdated completed",
    "E ToolCallUpdated completed",
    "P tool completed",
    "P tool completed",
    "E DisplayMessageUpdated",
    "E DisplayMessageUpdated",
    "E MessageCompleted tool",
    "P save tool",
    "E DisplayMessageSaved",
    "E DisplayMessageSaved",
    "E MessageStarted",
    "E MessageCompleted assistant",
    "P save assistant",
    "E DisplayMessageSaved",
    "P persist on_completion",
    "E RunEnded completed",
    "E StatusChanged idle",
]


def run_events(words: list[str]) -> list[str]:
    """The events of the run itself: rows announce themselves in an order of their own."""
    return [w for w in words if w.startswith("E ") and "DisplayMessage" not in w]


def store_story(words: list[str]) -> list[str]:
    """The display store's calls and the events that announce them."""
    return [
        w
        for w in words
        if "DisplayMessage" in w or (w.startswith("P ") and not w.startswith("P persist"))
    ]


async def end_of(world: World, reply: AddMessageReply) -> RunReply:
    return await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))


async def test_a_text_turn_with_an_instant_store_has_one_order() -> None:
    async with World(model=FakeModel(say("Hel", "lo"))) as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert world.trace.words == [*STARTED, *TEXT_TURN]


async def test_a_tool_turn_with_an_instant_store_has_one_order() -> None:
    tools = {"one": FakeTool("one"), "two": FakeTool("two")}
    model = FakeModel(ask("one", "two", text="let me see"), say("done"))
    async with World(model=model, tools=tools) as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert world.trace.words == [*STARTED, *TOOL_TURN]


@pytest.mark.parametrize("turn", ["text", "tools"])
async def test_a_store_that_is_held_keeps_the_three_orders(turn: str) -> None:
    """The model goes on while the store hangs; each story keeps its own order."""
    tools = {"one": FakeTool("one"), "two": FakeTool("two")}
    answers = {
        "text": ([say("Hel", "lo")], TEXT_TURN),
        "tools": ([ask("one", "two", text="let me see"), say("done")], TOOL_TURN),
    }
    model_answers, expected = answers[turn]
    world = World(model=FakeModel(*model_answers), tools=tools, settle_timeout=timedelta(0))
    world.display.gate.close()
    async with world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        ended = await end_of(world, reply)
        while_held = list(world.trace.words)
        world.display.gate.open()
        wanted = len([w for w in expected if w.startswith("E DisplayMessage")])
        await world.trace.until(
            lambda: (
                len([w for w in world.trace.words if w.startswith("E DisplayMessage")]) == wanted
            )
        )

        assert reply.unsaved == 1
        assert reply.rows == ()
        assert store_story(while_held) == []
        assert run_events(while_held) == [*STARTED, *run_events(expected)]
        ends = world.logs["a"].bodies(RunEnded)
        assert isinstance(ends[0], RunEnded)
        assert ends[0].unsaved > 0
        assert ended.run.end is RunEnd.COMPLETED
        # What had gathered left together, so calls come in a row and their events after them.
        assert [w for w in store_story(world.trace.words) if w.startswith("P ")] == [
            w for w in store_story(expected) if w.startswith("P ")
        ]


async def test_the_reply_brings_the_rows_when_the_store_is_quick() -> None:
    async with World() as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))

        assert len(reply.rows) == 1
        assert reply.rows[0].message_id == reply.message_id
        assert reply.unsaved == 0


async def test_a_repeated_request_gets_the_same_answer_and_makes_no_second_message() -> None:
    async with World() as world:
        first = await world.registry.add_message(world.message("Hi", "r1"))
        again = await world.registry.add_message(world.message("Hi", "r1"))

        assert (again.message_id, again.run_id) == (first.message_id, first.run_id)
        assert again.replayed
        users = [m for m in world.state().messages if m.role is Role.USER]
        assert len(users) == 1


async def test_one_request_three_times_at_once_is_accepted_once() -> None:
    async with World() as world:
        replies = await asyncio.gather(
            *(world.registry.add_message(world.message("Hi", "r1")) for _ in range(3))
        )

        assert len({reply.message_id for reply in replies}) == 1
        assert [reply.replayed for reply in replies].count(False) == 1
        assert world.trace.words.count("P save user") == 1


async def test_a_request_id_with_other_content_is_refused_and_changes_nothing() -> None:
    async with World() as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))
        revision = world.state().revision

        with pytest.raises(ConflictError) as caught:
            await world.registry.add_message(world.message("Other", "r1"))

        assert caught.value.reason == "REQUEST_ID_REUSED"
        assert world.state().revision == revision


async def test_fifty_messages_at_once_are_all_kept_in_one_order_with_one_run_at_a_time() -> None:
    async with World() as world:
        replies = await asyncio.gather(
            *(world.registry.add_message(world.message(f"m{i}", f"r{i}")) for i in range(50))
        )
        for reply in replies:
            await end_of(world, reply)

        texts = [m.text() for m in world.state().messages if m.role is Role.USER]
        assert sorted(texts) == sorted(f"m{i}" for i in range(50))
        saved = [message_id for _, message_id in world.display.order]
        in_state = [m.message_id for m in world.state().messages]
        assert [i for i in saved if i in in_state] == in_state
        starts = [w for w in world.trace.words if w in ("E RunStarted", "E RunEnded completed")]
        assert starts == ["E RunStarted", "E RunEnded completed"] * (len(starts) // 2)


async def test_a_message_in_mid_run_is_promised_to_the_next_run_and_answered_there() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("first"), gate, EndChunk(StopKind.STOP)], say("second"))
    async with World(model=model) as world:
        first = await world.registry.add_message(world.message("one", "r1"))
        await world.trace.until_word("E MessageStarted")
        second = await world.registry.add_message(world.message("two", "r2"))
        gate.open()
        ended = await end_of(world, second)

        assert second.queued
        assert second.run_id != first.run_id
        assert ended.final_message is not None
        assert ended.final_message.text() == "second"
        idle = world.trace.words.index("E StatusChanged idle", 2)
        assert idle > world.trace.words.index(
            "E RunStarted", world.trace.words.index("E RunEnded completed")
        )


async def test_cancel_keeps_the_partial_text_and_says_so_everywhere() -> None:
    model = FakeModel([TextChunk("par"), TextChunk("tial"), Gate(is_open=False)])
    async with World(model=model) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        cancelled = await world.registry.cancel_run(CancelRun(SCOPE, "a"))

        last = world.state().messages[-1]
        assert not cancelled.already_ended
        assert (last.text(), last.status) == ("partial", MessageStatus.CANCELLED)
        assert world.trace.words[-7:] == [
            "P save assistant",
            "E DisplayMessageSaved",
            "P synthetic",
            "E DisplayMessageSaved",
            "P persist on_cancel",
            "E RunEnded cancelled",
            "E StatusChanged cancelled",
        ]
        assert (await end_of(world, reply)).run.end is RunEnd.CANCELLED


async def test_a_model_that_never_lets_go_can_be_cancelled() -> None:
    """A local model may have each token ready: without turns for others, the whole server stands still."""
    async with World(model=FakeModel(say(*["x"] * 50_000))) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        await world.registry.cancel_run(CancelRun(SCOPE, "a"))

        assert (await end_of(world, reply)).run.end is RunEnd.CANCELLED
        assert 0 < len(world.state().messages[-1].text()) < 50_000


async def test_cancel_of_a_run_that_is_not_current_never_touches_another_run() -> None:
    gate = Gate(is_open=False)
    async with World(model=FakeModel([gate, *say("ok")])) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        cancelled = await world.registry.cancel_run(CancelRun(SCOPE, "a", "run-of-yesterday"))
        gate.open()

        assert cancelled.already_ended
        assert (await end_of(world, reply)).run.end is RunEnd.COMPLETED


async def test_cancel_gives_each_call_in_flight_a_cancelled_row_and_result() -> None:
    """An ordinary tool's row that stays `executing` for ever was a defect of the original."""
    tools = {"slow": FakeTool("slow", Gate(is_open=False)), "quick": FakeTool("quick")}
    async with World(model=FakeModel(ask("slow", "quick")), tools=tools) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("P tool completed")
        await world.registry.cancel_run(CancelRun(SCOPE, "a"))

        results = {r.name: r for r in world.state().messages[-1].tool_results()}
        assert results["slow"].is_error
        assert not results["quick"].is_error
        assert sorted(world.display.statuses.values()) == ["cancelled", "completed"]
        steps = [
            b.step
            for b in world.logs["a"].bodies(ToolCallUpdated)
            if isinstance(b, ToolCallUpdated)
        ]
        assert steps[-1] is ToolCallStep.CANCELLED


async def test_the_next_turn_after_a_cancelled_tool_is_accepted_by_a_strict_model() -> None:
    """Field report L12: cancel in a tool call, and the next turn was refused by the provider."""
    tools = {"slow": FakeTool("slow", Gate(is_open=False))}
    model = FakeModel(ask("slow"), say("fine"))
    async with World(model=model, tools=tools) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("P tool executing")
        await world.registry.cancel_run(CancelRun(SCOPE, "a"))
        await end_of(world, await world.registry.add_message(world.message("again", "r2")))

        asked = {c.call_id for m in model.requests[-1].messages for c in m.tool_calls()}
        answered = {r.call_id for m in model.requests[-1].messages for r in m.tool_results()}
        assert asked == answered != set()


async def test_held_messages_wait_after_a_cancel_and_go_first_with_the_next_one() -> None:
    model = FakeModel([TextChunk("x"), Gate(is_open=False)], say("both"))
    async with World(model=model) as world:
        await world.registry.add_message(world.message("one", "r1"))
        await world.trace.until_word("E MessageStarted")
        held = await world.registry.add_message(world.message("two", "r2"))
        await world.registry.cancel_run(CancelRun(SCOPE, "a"))
        before = len(world.state().held)
        third = await world.registry.add_message(world.message("three", "r3"))
        await end_of(world, third)

        assert before == 1
        assert held.run_id == third.run_id
        users = [m.text() for m in world.state().messages if m.role is Role.USER]
        assert users == ["one", "two", "three"]


async def test_start_run_delivers_what_is_held_and_is_refused_while_a_run_is_under_way() -> None:
    gate = Gate(is_open=False)
    async with World(model=FakeModel([gate, *say("ok")])) as world:
        held = replace(world.message("Hi", "r1"), hold=True)
        reply = await world.registry.add_message(held)
        run = await world.registry.start_run(StartRun(SCOPE, "a", "s1"))
        with pytest.raises(InvalidStateError):
            await world.registry.start_run(StartRun(SCOPE, "a", "s2"))
        gate.open()
        ended = await world.registry.get_run(GetRun(SCOPE, "a", run.run_id, FOREVER))

        assert (reply.run_id, reply.queued) == ("", True)
        assert ended.run.end is RunEnd.COMPLETED
        assert (await world.registry.start_run(StartRun(SCOPE, "a", "s1"))).replayed


async def test_what_is_not_there_is_not_found() -> None:
    async with World() as world:
        with pytest.raises(NotFoundError):
            await world.registry.get_agent(SCOPE, "nobody")
        await world.registry.add_message(world.message("Hi", "r1"))
        with pytest.raises(NotFoundError):
            await world.registry.get_run(GetRun(SCOPE, "a", "run-x"))


async def test_a_sleeping_agent_is_read_without_being_woken() -> None:
    async with World() as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await end_of(world, reply)
        stopped = await world.registry.stop_agent(StopAgent(SCOPE, "a"))
        view = await world.registry.get_agent(SCOPE, "a")
        run = await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id))

        assert stopped.stopped
        assert (view.status, view.live) == (AgentStatus.ASLEEP, False)
        assert (run.run.end, run.phase) == (RunEnd.COMPLETED, RunPhase.ENDED)
        assert world.trace.words.count("E AgentStarted") == 1
        assert world.journal.entries == {}


async def test_a_message_wakes_a_sleeping_agent_with_its_history() -> None:
    model = FakeModel(say("one"), say("two"))
    async with World(model=model) as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))
        await world.registry.stop_agent(StopAgent(SCOPE, "a"))
        await end_of(world, await world.registry.add_message(world.message("more", "r2")))

        assert [m.text() for m in model.requests[-1].messages] == ["Hi", "one", "more"]
        statuses = [
            b.status for b in world.logs["a"].bodies(StatusChanged) if isinstance(b, StatusChanged)
        ]
        assert statuses == [AgentStatus.IDLE, AgentStatus.RUNNING, AgentStatus.IDLE]
