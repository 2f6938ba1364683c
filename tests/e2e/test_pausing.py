"""A person pauses a real run, the server dies, and somebody else lets the run go on tomorrow."""

from __future__ import annotations

from typing import Any

import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.client import InvalidArgumentError, NotFoundError
from tests.support.real_server import FOREVER, ended, real_server, rows, said, tool_statuses, until

pytestmark = pytest.mark.timeout(120)


async def test_a_paused_run_goes_on_after_the_server_was_killed() -> None:
    look = {"tool_call": {"name": "slow", "arguments": "{}"}}
    script: list[dict[str, Any]] = [
        {"when": {"call_number": 1}, "repeat": True, "steps": [{"text": "I look."}, look]},
        {"when": {"call_number": 2}, "repeat": True, "steps": [{"text": "It is done."}]},
    ]
    async with real_server(script, tools=("slow",)) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "hello")

        async def is_at_work() -> bool:
            return server.calls() == ["slow"]

        await until(is_at_work)
        await scope.pause_run("a", reason="waiting for Ann")
        server.touch("go")
        paused = await scope.get_run("a", reply.run_id, wait=FOREVER)
        shown_before = await scope.get_agent("a")

        await server.kill()
        scope = await server.start()
        asleep = await scope.get_agent("a")
        resumed = await scope.resume_agent("a")
        run = (await ended(scope, reply.run_id)).run
        statuses = await tool_statuses(scope)
        shown = [said(row) for row in await rows(scope)]

    assert paused.run.end == agent_pb2.RUN_END_PAUSED
    assert paused.run.phase == agent_pb2.RUN_PHASE_PAUSED
    assert shown_before.status == agent_pb2.AGENT_STATUS_PAUSED
    assert (shown_before.pause_reason, asleep.pause_reason) == (
        "waiting for Ann",
        "waiting for Ann",
    )
    assert resumed.run_id == reply.run_id
    assert run.end == agent_pb2.RUN_END_COMPLETED
    assert server.calls_seen == ["slow"]
    assert statuses == {"slow": "completed"}
    assert shown[-1] == "It is done."


async def test_what_cannot_be_paused_or_answered_is_said() -> None:
    async with real_server([]) as server:
        scope = await server.start()
        await scope.start_agent("a")
        with pytest.raises(InvalidArgumentError) as too_long:
            await scope.pause_run("a", reason="x" * 1025)
        with pytest.raises(NotFoundError) as nobody:
            await scope.pause_run("nobody")

    assert too_long.value.violations[0][0] == "reason"
    assert "1024" in str(too_long.value)
    assert nobody.value.reason == "AGENT_NOT_FOUND"
