"""What a crash of the server takes, and what it must not take."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sagentry.server.domain.commands import GetRun
from sagentry.server.domain.events import MessageTruncated, RunEnded
from sagentry.server.domain.messages import MessageStatus, Role
from sagentry.server.domain.models import TextChunk
from sagentry.server.domain.runs import RunEnd
from sagentry.server.errors import CorruptDataError, PluginError, UnavailableError
from tests.support.agent_world import SCOPE, FakeModel, FakeTool, World, ask, say
from tests.support.memory_ports import Gate

pytestmark = pytest.mark.anyio

FOREVER = timedelta(seconds=20)


async def finish(world: World) -> None:
    await world.__aexit__()


async def test_an_accepted_message_whose_run_had_not_begun_is_answered_after_the_restart() -> None:
    """The run's first record never reached the disk; the message was acknowledged."""
    world = World(model=FakeModel(say("late but true")), settle_timeout=timedelta(0))
    world.display.gate.close()
    await world.__aenter__()
    held = world.journal
    original = held.append

    def refuse_run_begin(*args: object, **kwargs: object) -> None:
        records = args[2]
        if any("HeldDelivered" in record.payload for record in records):  # type: ignore[attr-defined]
            return  # the disk is as slow as the crash is early
        original(*args, **kwargs)  # type: ignore[arg-type]

    held.append = refuse_run_begin  # type: ignore[method-assign]
    reply = await world.registry.add_message(world.message("Hi", "r1"))
    held.append = original  # type: ignore[method-assign]
    after = await world.crash_and_restart()
    world.display.gate.open()
    await after.trace.until_word("E RunEnded completed")
    again = await after.registry.add_message(after.message("Hi", "r1"))

    assert [m.text() for m in after.state().messages] == ["Hi", "late but true"]
    assert after.trace.words.count("P save user") == 1
    assert (again.message_id, again.run_id, again.replayed) == (
        reply.message_id,
        reply.run_id,
        True,
    )
    await finish(after)


async def test_a_sentence_cut_by_a_crash_is_kept_as_cut_and_the_run_is_lost_once() -> None:
    model = FakeModel([TextChunk("seen by a person"), Gate(is_open=False)], say("next"))
    world = World(model=model)
    await world.__aenter__()
    reply = await world.registry.add_message(world.message("Hi", "r1"))
    await world.trace.until_word("E MessageStarted")
    world.clock.advance(0.25)
    await world.journal.until_recorded("seen by a person")
    after = await world.crash_and_restart()
    await after.trace.until_word("P persist on_error")

    cut = after.state().messages[-1]
    assert (cut.text(), cut.status) == ("seen by a person", MessageStatus.STREAM_ERROR)
    log = after.logs["a"]
    assert len(log.bodies(MessageTruncated)) == 1
    ends = [event.run_id for event in log.events if isinstance(event.body, RunEnded)]
    assert ends == [reply.run_id]
    ended = await after.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))
    assert ended.run.end is RunEnd.LOST
    following = await after.registry.add_message(after.message("more", "r2"))
    ended = await after.registry.get_run(GetRun(SCOPE, "a", following.run_id, FOREVER))
    assert ended.run.end is RunEnd.COMPLETED
    await finish(after)


async def test_a_finished_tool_is_not_run_again_and_an_unfinished_one_is_of_unknown_outcome() -> (
    None
):
    """Field report L54: the side effect was done, the crash came before the result was stored."""
    quick, slow = FakeTool("quick"), FakeTool("slow", Gate(is_open=False))
    model = FakeModel(ask("quick", "slow"), say("after"))
    world = World(model=model, tools={"quick": quick, "slow": slow})
    await world.__aenter__()
    await world.registry.add_message(world.message("Hi", "r1"))
    await world.trace.until_word("P tool completed")
    after = await world.crash_and_restart()
    await after.trace.until_word("P persist on_error")

    results = {r.name: r for m in after.state().messages for r in m.tool_results()}
    assert len(quick.calls) == len(slow.calls) == 1
    assert results["quick"].text() == "quick done"
    assert "unknown" in results["slow"].text()
    assert sorted(after.display.statuses.values()) == ["completed", "failed"]
    following = await after.registry.add_message(after.message("more", "r2"))
    await after.registry.get_run(GetRun(SCOPE, "a", following.run_id, FOREVER))
    assert len(quick.calls) == len(slow.calls) == 1
    await finish(after)


async def test_a_store_that_lost_its_answer_stores_each_row_once() -> None:
    """The store committed, the server died before it heard: the same write comes again."""
    world = World()
    await world.__aenter__()
    reply = await world.registry.add_message(world.message("Hi", "r1"))
    entries = dict(world.journal.entries)
    await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))
    world.journal.entries.update(entries)
    after = await world.crash_and_restart()
    await after.trace.until_word("E AgentStarted", 2)

    ids = [message_id for _, message_id in after.display.order]
    assert len(ids) == len(set(ids))
    await after.registry.get_agent(SCOPE, "a")
    assert after.journal.entries == {}
    await finish(after)


async def test_no_agent_runs_on_a_state_that_its_journal_is_ahead_of() -> None:
    """While the rows of the earlier life cannot be stored the start is refused, and tried again."""
    world = World(settle_timeout=timedelta(0))
    world.display.gate.close()
    await world.__aenter__()
    await world.registry.add_message(world.message("Hi", "r1"))
    world.display.failure = PluginError(
        "PLUGIN_UNAVAILABLE",
        "away",
        plugin="rows",
        method="ApplyWrites",
        elapsed=timedelta(0),
        budget=timedelta(seconds=3),
    )
    after = await world.crash_and_restart()
    world.display.gate.open()
    with pytest.raises(UnavailableError) as caught:
        await after.registry.add_message(after.message("more", "r2"))
    world.display.failure = None
    await after.trace.until_word("E AgentStarted", 2)

    assert caught.value.reason == "PLUGIN_BEHIND"
    following = await after.registry.add_message(after.message("more", "r2"))
    await after.registry.get_run(GetRun(SCOPE, "a", following.run_id, FOREVER))
    users = [m.text() for m in after.state().messages if m.role is Role.USER]
    assert users == ["Hi", "more"]
    await finish(after)


async def test_a_state_that_cannot_be_read_stops_the_start_and_is_not_overwritten() -> None:
    """The original silently began an empty conversation and saved it over the old one."""
    async with World() as world:
        world.states.base["a"] = ('{"messages": 7}', 3)
        with pytest.raises(CorruptDataError) as caught:
            await world.registry.add_message(world.message("Hi", "r1"))

        assert caught.value.reason == "STATE_CORRUPT"
        assert world.states.base["a"] == ('{"messages": 7}', 3)


async def test_text_is_flushed_by_size_long_before_the_message_is_whole() -> None:
    """A crash takes at most one flush of a running text."""
    pieces = [TextChunk(f"{index:04}" + "y" * 996) for index in range(10)]
    async with World(model=FakeModel([*pieces, Gate(is_open=False)])) as world:
        await world.registry.add_message(world.message("Hi", "r1"))
        await world.journal.until_recorded("0009")

        assert world.trace.words.count("E MessageCompleted assistant") == 0


async def test_patches_not_saved_before_the_crash_are_in_the_state_after_it() -> None:
    """The state store never answered; the journal alone has the turn."""
    world = World(model=FakeModel(say("kept")), settle_timeout=timedelta(0))
    world.states.gate.close()
    await world.__aenter__()
    reply = await world.registry.add_message(world.message("Hi", "r1"))
    await world.registry.get_run(GetRun(SCOPE, "a", reply.run_id, FOREVER))
    before = world.state()
    after = await world.crash_and_restart()
    world.states.gate.open()
    await after.trace.until_word("P persist on_completion")

    assert after.state().messages == before.messages
    assert after.journal.entries == {}
    await finish(after)
