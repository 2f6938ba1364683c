"""Stores that refuse, break, forget their answer, or belong to another server now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sagentry.server.domain.commands import AddMessageReply, GetRun, StartAgent, StopAgent
from sagentry.server.domain.events import (
    AgentStopped,
    PluginDegraded,
    PluginRecovered,
    RunEnded,
    StreamEndReason,
    WriteRejected,
)
from sagentry.server.domain.models import EndChunk, StopKind, TextChunk
from sagentry.server.domain.runs import Run, RunEnd, StopReason
from sagentry.server.errors import LimitExceededError, PluginError, StaleEpochError
from tests.support.agent_world import SCOPE, FakeModel, FakeTool, World, ask, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)


def failure(reason: str, method: str = "PersistState") -> PluginError:
    kind = StaleEpochError if reason == "STALE_EPOCH" else PluginError
    return kind(
        reason,
        "no",
        plugin="states",
        method=method,
        elapsed=timedelta(0),
        budget=timedelta(seconds=3),
    )


async def run_of(world: World, reply: AddMessageReply) -> Run:
    return (await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))).run


async def turn(world: World, text: str, request_id: str) -> Run:
    return await run_of(world, await world.registry.add_message(world.message(text, request_id)))


@pytest.mark.parametrize("reason", ["REVISION_CONFLICT", "PLUGIN_REFUSED", "PLUGIN_FAULT"])
async def test_a_save_that_is_refused_for_good_is_given_up_and_told_once(reason: str) -> None:
    async with World(settle_timeout=timedelta(0)) as world:
        world.states.failure = failure(reason)
        await turn(world, "Hi", "r1")
        await world.trace.until_word("E WriteRejected")
        stopped_asking = world.states.asked
        for _ in range(20):
            await asyncio.sleep(0)
        asked = world.states.asked
        view = world.agent()
        unsaved = view.unsaved
        world.states.failure = None
        await turn(world, "more", "r2")
        await world.trace.until_word("P persist on_completion")
        rejected = world.logs["a"].bodies(WriteRejected)

        assert [r.reason for r in rejected if isinstance(r, WriteRejected)] == [reason]
        assert asked == stopped_asking
        assert unsaved == 1
        assert "Hi" in world.states.base["a"][0]
        await world.trace.until(lambda: view.unsaved == 0)


async def test_a_save_that_breaks_in_our_own_code_does_not_end_the_agent() -> None:
    async with World(settle_timeout=timedelta(0)) as world:
        world.states.failure = ValueError("bug")
        world.display.failure = ValueError("bug")
        first = await turn(world, "Hi", "r1")
        await world.trace.until_word("E WriteRejected", 3)
        world.states.failure = world.display.failure = None
        second = await turn(world, "more", "r2")
        await world.trace.until_word("P persist on_completion")

        assert (first.end, second.end) == (RunEnd.COMPLETED, RunEnd.COMPLETED)


async def test_a_patch_that_is_refused_is_followed_by_the_whole_state() -> None:
    async with World(model=FakeModel(say("x" * 2000), say("y"))) as world:
        await turn(world, "Hi", "r1")
        world.states.append_failure = failure("REVISION_CONFLICT", "AppendState")
        await turn(world, "more", "r2")

        assert world.trace.words.count("P persist on_completion") == 2
        assert "E WriteRejected" not in world.trace.words


async def test_the_store_that_works_again_is_the_one_that_failed() -> None:
    async with World(settle_timeout=timedelta(0)) as world:
        world.states.failure = failure("PLUGIN_UNAVAILABLE")
        await turn(world, "Hi", "r1")
        await world.trace.until_word("E PluginDegraded")
        world.states.failure = None
        await world.trace.until_word("E PluginRecovered")
        degraded = world.logs["a"].bodies(PluginDegraded)
        recovered = world.logs["a"].bodies(PluginRecovered)

        assert [getattr(event, "plugin", "") for event in degraded + recovered] == [
            "states",
            "states",
        ]


async def test_an_outage_of_many_runs_ends_with_one_save() -> None:
    """A save per missed run would be a burst of whole states when the store comes back."""
    model = FakeModel(*(say(str(number)) for number in range(20)))
    async with World(model=model, settle_timeout=timedelta(0)) as world:
        world.states.gate.close()
        for number in range(20):
            await turn(world, "Hi", f"r{number}")
        world.states.gate.open()
        await world.trace.until(lambda: not world.journal.entries)

        assert world.states.asked <= 3


async def test_a_checkpoint_under_way_takes_no_later_save_with_it() -> None:
    """The answer to one save must not count for the one that was wanted meanwhile."""
    world = World(settle_timeout=timedelta(0))
    world.states.capabilities = replace(world.states.capabilities, checkpoint=True)
    async with world:
        world.states.gate.close()
        await turn(world, "Hi", "r1")
        world.states.gate.open()
        await world.trace.until(lambda: not world.journal.entries)

        assert "P persist on_completion" in world.trace.words or "P append" in world.trace.words
        stored = await world.registry.get_state(SCOPE, "a")
        await world.registry.stop_agent(StopAgent(SCOPE, "a"))
        assert "P persist on_shutdown" in world.trace.words
        assert stored.revision <= world.states.base["a"][1]


async def sizes_after_three_turns(limit: int) -> tuple[int, int, int]:
    """Sizes of the stored base, of the stored patches, and of the state as a whole."""
    lengths = (22_000, 7_000, 11_500)
    world = World(model=FakeModel(*(say("x" * length) for length in lengths)))
    world.states.max_state_bytes = limit
    async with world:
        for length in lengths:
            await turn(world, "Hi", f"r{length}")
        base = len(world.states.base["a"][0])
        patches = sum(len(text) for _, text in world.states.patches["a"])
        return base, patches, world.agent().saver.measured_size()


async def test_base_and_patches_together_never_outgrow_what_the_store_can_answer() -> None:
    """The store answers both in one message at the next start, and that has a limit."""
    base, patches, whole = await sizes_after_three_turns(1_000_000)
    limit = (base + patches + whole) // 2
    limited_base, limited_patches, _ = await sizes_after_three_turns(limit)

    assert whole < limit < base + patches
    assert limited_base + limited_patches <= limit


async def test_a_message_is_refused_for_what_the_state_is_and_not_for_its_patches() -> None:
    model = FakeModel(*(say("y" * 3000) for _ in range(4)))
    world = World(model=model, settle_timeout=timedelta(0))
    world.states.max_state_bytes = 60_000
    async with world:
        world.states.gate.close()
        await turn(world, "Hi", "r1")
        world.states.gate.open()
        await turn(world, "x" * 6000, "r2")
        await turn(world, "x" * 6000, "r3")
        big = "z" * 9000
        await turn(world, big, "r4")
        with pytest.raises(LimitExceededError) as caught:
            await world.registry.add_message(world.message("z" * 40_000, "r5"))

        assert caught.value.reason == "STATE_TOO_LARGE"


async def test_a_poisoned_write_does_not_keep_an_agent_from_starting() -> None:
    world = World(settle_timeout=timedelta(0))
    world.display.gate.close()
    await world.__aenter__()
    reply = await world.registry.add_message(world.message("poison", "r1"))
    await run_of(world, reply)
    world.display.poison = "poison"
    after = await world.crash_and_restart()
    world.display.gate.open()
    async with asyncio.timeout(20):
        await after.registry.start_agent(StartAgent(SCOPE, "a"))

    assert list(after.journal.quarantine.values()) == ["PLUGIN_FAULT"]
    assert "P save assistant" in after.trace.words
    await after.__aexit__()


async def test_a_claimed_conversation_is_left_at_once_and_nothing_more_is_written() -> None:
    gate = Gate(is_open=False)
    model = FakeModel([TextChunk("x"), gate, EndChunk(StopKind.STOP)], say("ok"))
    async with World(model=model) as world:
        reply = await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("E MessageStarted")
        log = world.logs["a"]
        world.display.failure = failure("STALE_EPOCH", "SaveMessage")
        await world.registry.add_message(world.message("more", "r2"))
        await world.trace.until_word("E AgentStopped")
        entries = dict(world.journal.entries)
        rows = list(world.display.order)
        await log.has_ended.wait()

        ended = [
            (event.run_id, event.body.error.reason)
            for event in log.events
            if isinstance(event.body, RunEnded) and event.body.error
        ]
        assert ended == [(reply.run_id, "STALE_EPOCH")]
        assert log.events[-1].body == AgentStopped(StopReason.FENCED)
        assert log.ended == (StreamEndReason.FENCED, True)
        assert entries == {}
        assert set(world.journal.quarantine.values()) == {"STALE_EPOCH"}
        assert [world.display.order, world.states.patches.get("a", [])] == [rows, []]
        world.display.failure = None


async def test_a_tool_under_way_ends_when_the_conversation_is_claimed() -> None:
    gate = Gate(is_open=False)
    tools = {"slow": FakeTool("slow", gate)}
    async with World(model=FakeModel(ask("slow")), tools=tools) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.trace.until_word("P tool executing")
        world.display.failure = failure("STALE_EPOCH", "SaveMessage")
        await world.registry.add_message(world.message("more", "r2"))
        await world.trace.until_word("E AgentStopped")

        assert tools["slow"].running == 0
        world.display.failure = None


async def test_a_message_on_its_way_to_the_disk_of_a_lost_conversation_is_set_aside() -> None:
    async with World(settle_timeout=timedelta(0)) as world:
        world.display.gate.close()
        await turn(world, "Hi", "r1")
        world.journal.hold()
        adding = asyncio.get_running_loop().create_task(
            world.registry.add_message(world.message("more", "r2"))
        )
        await world.journal.until_held()
        world.display.failure = failure("STALE_EPOCH", "SaveMessage")
        world.display.gate.open()
        await world.display.has_failed.wait()
        world.display.failure = None
        world.journal.release()
        async with asyncio.timeout(20):
            await asyncio.wait({adding})

        assert isinstance(adding.exception(), StaleEpochError)
        assert set(world.journal.quarantine.values()) == {"STALE_EPOCH"}
        assert world.journal.entries == {}
