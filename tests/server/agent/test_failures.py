"""What can go wrong in a turn: every path ends the run once and leaves the agent usable."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sagentry.server.domain.commands import (
    AddMessageReply,
    GetRun,
    RunReply,
)
from sagentry.server.domain.messages import MessageStatus, Role, ToolResult
from sagentry.server.domain.models import (
    EndChunk,
    ModelCallError,
    StopKind,
    TextChunk,
    ToolCallChunk,
)
from sagentry.server.domain.runs import RunEnd
from sagentry.server.errors import (
    LimitExceededError,
    PluginError,
)
from tests.support.agent_world import (
    SCOPE,
    Answer,
    FakeModel,
    FakeTool,
    World,
    ask,
    say,
)
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)


async def end_of(world: World, reply: AddMessageReply) -> RunReply:
    return await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))


async def test_a_dead_stream_keeps_the_text_marks_it_and_writes_no_second_row() -> None:
    cut = ModelCallError("MODEL_STREAM_CUT", "cut", retryable=True)
    async with World(model=FakeModel([TextChunk("half"), cut])) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        last = world.state().messages[-1]
        assert (last.text(), last.status) == ("half", MessageStatus.STREAM_ERROR)
        assert ended.run.end is RunEnd.ERROR
        assert "P synthetic" not in world.trace.words
        assert "P persist on_error" in world.trace.words


async def test_a_model_that_stops_without_an_end_is_a_dead_stream() -> None:
    async with World(model=FakeModel([TextChunk("half")])) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert ended.run.error is not None
        assert ended.run.error.reason == "MODEL_STREAM_CUT"


async def test_a_refused_model_call_ends_the_run_once_with_a_row_that_says_why() -> None:
    refused = ModelCallError("MODEL_AUTHENTICATION", "the key was not accepted")
    async with World(model=FakeModel([refused])) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert ended.run.error is not None
        assert ended.run.error.reason == "MODEL_AUTHENTICATION"
        assert world.trace.words[-5:] == [
            "P synthetic",
            "E DisplayMessageSaved",
            "P persist on_error",
            "E RunEnded error",
            "E StatusChanged error",
        ]


async def test_a_fault_in_our_own_code_ends_the_run_once_and_leaves_the_agent_usable() -> None:
    async with World(model=FakeModel([RuntimeError("bug")], say("ok"))) as world:
        first = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))
        second = await end_of(world, await world.registry.add_message(world.message("Hi", "r2")))

        assert first.run.end is RunEnd.ERROR
        assert first.run.error is not None
        assert "bug" not in first.run.error.message
        assert second.run.end is RunEnd.COMPLETED
        assert world.trace.words.count("E RunEnded error") == 1


async def test_an_unknown_tool_fails_its_call_and_the_run_goes_on() -> None:
    tools = {"one": FakeTool("one")}
    async with World(model=FakeModel(ask("one", "nine"), say("ok")), tools=tools) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        results = [
            part
            for message in world.state().messages
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
        assert [r.is_error for r in results] == [False, True]
        assert "nine" in results[1].text()
        assert sorted(world.display.statuses.values()) == ["completed", "failed"]
        assert ended.run.end is RunEnd.COMPLETED


async def test_calls_of_a_message_cut_by_length_are_never_run() -> None:
    tool = FakeTool("one")
    cut_off: Answer = [ToolCallChunk(0, "p", "one", '{"a":'), EndChunk(StopKind.LENGTH)]
    async with World(model=FakeModel(cut_off), tools={"one": tool}) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert tool.calls == []
        assert ended.run.end is RunEnd.COMPLETED
        assert world.state().messages[-1].status is MessageStatus.LENGTH


async def test_a_run_ends_at_its_turn_limit_with_a_reason() -> None:
    tools = {"one": FakeTool("one")}
    model = FakeModel(*(ask("one") for _ in range(5)))
    async with World(model=model, tools=tools, max_turns=3) as world:
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        assert ended.run.turns == 3
        assert ended.run.error is not None
        assert ended.run.error.reason == "TURN_LIMIT"


async def test_a_message_of_more_than_a_mebibyte_of_text_ends_as_length() -> None:
    piece = "x" * 65536
    async with World(model=FakeModel([*(TextChunk(piece) for _ in range(40))])) as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))

        last = world.state().messages[-1]
        assert last.status is MessageStatus.LENGTH
        assert len(last.text()) == 1024 * 1024


async def test_a_full_disk_refuses_the_message_and_changes_nothing() -> None:
    async with World() as world:
        await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))
        revision = world.state().revision
        world.journal.failure = LimitExceededError("JOURNAL_FULL", "full", limit=1, actual=1)
        with pytest.raises(LimitExceededError):
            await world.registry.add_message(world.message("Hi", "r2"))
        world.journal.failure = None
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r3")))

        assert ended.run.end is RunEnd.COMPLETED
        assert [m.text() for m in world.state().messages if m.role is Role.USER] == ["Hi", "Hi"]
        assert world.state().revision > revision


async def test_a_disk_that_fills_up_in_mid_run_ends_the_run_and_not_the_agent() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("x"), gate, EndChunk(StopKind.STOP)], say("ok"))
    async with World(model=model) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        world.journal.failure = LimitExceededError("JOURNAL_FULL", "full", limit=1, actual=1)
        gate.open()
        await world.trace.until_word("E RunEnded error")
        world.journal.failure = None
        again = await end_of(world, await world.registry.add_message(world.message("Hi", "r2")))

        assert reply.run_id
        assert again.run.end is RunEnd.COMPLETED


async def test_a_store_that_is_away_loses_nothing_and_is_announced_once() -> None:
    async with World(settle_timeout=timedelta(0)) as world:
        away = PluginError(
            "PLUGIN_UNAVAILABLE",
            "away",
            plugin="rows",
            method="ApplyWrites",
            elapsed=timedelta(0),
            budget=timedelta(seconds=3),
        )
        world.display.failure = away
        ended = await end_of(world, await world.registry.add_message(world.message("Hi", "r1")))
        world.display.failure = None
        await world.trace.until_word("P save assistant")

        assert ended.run.end is RunEnd.COMPLETED
        assert world.trace.words.count("E PluginDegraded") == 1
        await world.trace.until_word("E PluginRecovered")


async def test_a_poison_write_is_set_aside_and_the_next_one_goes_on() -> None:
    async with World() as world:
        refusal = PluginError(
            "PLUGIN_REFUSED",
            "no",
            plugin="rows",
            method="SaveMessage",
            elapsed=timedelta(0),
            budget=timedelta(seconds=3),
        )
        world.display.failure = refusal
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E WriteRejected")
        world.display.failure = None
        await end_of(world, reply)
        await world.trace.until_word("P persist on_completion")

        assert next(iter(world.journal.quarantine.values())) == "PLUGIN_REFUSED"
