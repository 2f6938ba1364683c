"""kill -9 of the real server with its real store: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.type.v1 import message_pb2
from sagentry.client import SagentryError, ScopedClient
from tests.support.real_server import (
    RealServer,
    ended,
    real_server,
    rows,
    said,
    state,
    texts,
    tool_results,
    tool_statuses,
    until,
)

pytestmark = pytest.mark.timeout(180)


async def went_on(scope: ScopedClient) -> None:
    """The next message is accepted and answered."""
    reply = await scope.add_message("a", "still there?")
    run = await ended(scope, reply.run_id)
    assert run.run.end == agent_pb2.RUN_END_COMPLETED
    assert run.final_message.parts[0].text.text == "I am."


async def is_in_state(scope: ScopedClient, text: str) -> bool:
    return text in texts(await state(scope), "assistant")


async def has_status(scope: ScopedClient, tool: str, status: str) -> bool:
    return (await tool_statuses(scope)).get(tool) == status


async def has_rows(scope: ScopedClient, count: int) -> bool:
    return len(await rows(scope)) >= count


STILL_THERE: dict[str, Any] = {
    "when": {"last_user_text": {"regex": "still there"}},
    "repeat": True,
    "steps": [{"text": "I am."}],
}


async def test_an_accepted_message_whose_run_had_not_begun_survives() -> None:
    script: list[dict[str, Any]] = [
        STILL_THERE,
        {"steps": [{"text": "one"}, {"wait_for": "never"}]},
    ]
    async with real_server(script) as server:
        scope = await server.start()
        first = await scope.add_message("a", "first")
        second = await scope.add_message("a", "second", request_id="r-2")
        await server.kill()
        scope = await server.start()
        again = await scope.add_message("a", "second", request_id="r-2")
        with pytest.raises(SagentryError) as caught:
            await scope.add_message("a", "other", request_id="r-2")
        await went_on(scope)
        found = await state(scope)
        shown = [said(row) for row in await rows(scope)]
        lost = await scope.get_run("a", first.run_id)

    assert second.queued
    assert (again.message_id, again.run_id, again.replayed) == (
        second.message_id,
        second.run_id,
        True,
    )
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert texts(found, "user") == ["first", "second", "still there?"]
    assert [text for text in shown if text in ("first", "second")] == ["first", "second"]
    assert lost.run.end == agent_pb2.RUN_END_LOST


async def test_a_sentence_cut_by_the_kill_is_kept_as_cut() -> None:
    script: list[dict[str, Any]] = [
        STILL_THERE,
        {"steps": [{"text": ["half a ", "sentence"]}, {"wait_for": "never"}]},
    ]
    async with real_server(script) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "hello")
        async with scope.subscribe("a") as stream:
            seen = ""
            async with asyncio.timeout(30):
                while "sentence" not in seen:
                    item = await anext(stream)
                    seen += item.delta.text.text
                    seen += "".join(
                        p.text.text for m in item.snapshot.growing_messages for p in m.parts
                    )
        await until(lambda: is_in_state(scope, "half a sentence"))
        await server.kill()
        scope = await server.start()
        run = (await ended(scope, reply.run_id)).run
        await went_on(scope)
        cut = next(row for row in await rows(scope) if said(row) == "half a sentence")

    assert run.end == agent_pb2.RUN_END_LOST
    assert cut.content.stop_reason == message_pb2.MESSAGE_STATUS_STREAM_ERROR


async def test_a_finished_tool_is_not_run_again_and_the_other_is_of_unknown_outcome() -> None:
    calls = [{"tool_call": {"name": "quick"}}, {"tool_call": {"name": "slow"}}]
    script: list[dict[str, Any]] = [STILL_THERE, {"steps": calls}]
    async with real_server(script, tools=("quick", "slow")) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "work")
        await until(lambda: has_status(scope, "quick", "completed"))
        await server.kill()
        ran = server.calls()
        server.touch("go")
        scope = await server.start()
        run = (await ended(scope, reply.run_id)).run
        await went_on(scope)
        statuses, results = await tool_statuses(scope), await tool_results(scope)

    assert sorted(ran) == sorted(server.calls_seen) == ["quick", "slow"]
    assert statuses == {"quick": "completed", "slow": "failed"}
    assert results["quick"].text == "quick done"
    assert "unknown" in results["slow"].text
    assert run.end == agent_pb2.RUN_END_LOST


async def test_a_write_that_the_store_committed_and_never_answered_makes_no_second_row() -> None:
    script: list[dict[str, Any]] = [STILL_THERE, {"steps": [{"text": "answer"}]}]
    async with real_server(script) as server:
        await hold_and_kill(server)


async def hold_and_kill(server: RealServer) -> None:
    server.use_holding_store()
    server.touch("hold")
    scope = await server.start()
    reply = await scope.add_message("a", "hello", request_id="r-1")
    await server.until_exists("held")
    await server.kill()
    before = server.rows_in_database()
    (server.folder / "hold").unlink()
    scope = await server.start()
    again = await scope.add_message("a", "hello", request_id="r-1")
    await ended(scope, reply.run_id)
    await went_on(scope)
    shown = [said(row) for row in await rows(scope)]

    assert before >= 1
    assert again.message_id == reply.message_id
    assert shown.count("hello") == 1
    assert len(shown) == len(set(shown))


async def test_a_store_killed_in_mid_run_loses_nothing_and_needs_no_restart() -> None:
    script: list[dict[str, Any]] = [
        {"steps": [{"text": "before"}, {"wait_for": "go"}, {"text": " and after"}]},
        STILL_THERE,
    ]
    async with real_server(script) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "hello")
        server.kill_store()
        server.touch("go")
        await ended(scope, reply.run_id)
        await went_on(scope)
        await until(lambda: has_rows(scope, 4))
        shown = [said(row) for row in await rows(scope)]

    assert shown == ["hello", "before and after", "still there?", "I am."]
