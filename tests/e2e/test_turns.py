"""Turns of the real server with its real store: order, content, tools, and no word to anybody outside."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.type.v1 import message_pb2
from tests.support.real_server import (
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

ANY: dict[str, Any] = {"repeat": True, "steps": [{"text": "ok"}]}

CONTENT = [
    "\U0001f469\u200d\U0001f4bb\U0001f3f3\ufe0f\u200d\U0001f308 emoji",
    "\u05e9\u05dc\u05d5\u05dd right to left \u202e\u202c",
    "e\u0301 o\u0308 combining, n\u0303 not joined",
    "NUL \x00 and \x01 and \x7f and \uffff",
    "x" * (1024 * 1024 - 10),
]


async def test_fifty_messages_at_once_are_kept_in_one_order_and_each_sender_gets_its_own() -> None:
    async with real_server([ANY]) as server:
        scope = await server.start()
        replies = await asyncio.gather(*(scope.add_message("a", f"m{n}") for n in range(50)))
        for reply in replies:
            assert (await ended(scope, reply.run_id)).run.end == agent_pb2.RUN_END_COMPLETED
        found = await state(scope)
        shown = await rows(scope)

    users = [m for m in found["messages"] if m["role"] == "user"]
    user_rows = [row for row in shown if said(row).startswith("m")]
    assert sorted(texts(found, "user")) == sorted(f"m{n}" for n in range(50))
    assert [row.message_id for row in user_rows] == [m["message_id"] for m in users]
    by_id = {row.message_id: said(row) for row in user_rows}
    assert [by_id[reply.message_id] for reply in replies] == [f"m{n}" for n in range(50)]
    positions = [row.position for row in shown]
    assert positions == sorted(set(positions)) == list(range(1, len(shown) + 1))


@pytest.mark.parametrize("text", CONTENT, ids=["emoji", "rtl", "combining", "nul", "mebibyte"])
async def test_text_survives_server_store_database_and_the_way_back(text: str) -> None:
    script: list[dict[str, Any]] = [{"repeat": True, "steps": [{"text": text}]}]
    async with real_server(script) as server:
        scope = await server.start()
        reply = await scope.add_message("a", text)
        await ended(scope, reply.run_id)
        await server.stop()
        scope = await server.start()
        shown = [said(row) for row in await rows(scope)]
        found = await state(scope)

    assert shown == [text, text]
    assert texts(found, "user") == texts(found, "assistant") == [text]


async def test_arguments_and_signatures_survive_byte_for_byte() -> None:
    """Field report 49: integers were rounded, and depth was lost."""
    deep = "[" * 60 + "9007199254740993" + "]" * 60
    arguments = f'{{"text": "\\ud83d lone", "n": 9007199254740993, "deep": {deep}}}'
    script: list[dict[str, Any]] = [
        {
            "steps": [
                {"thinking": "let me think"},
                {"signature": "sig/+="},
                {"tool_call": {"name": "quick", "arguments": [arguments[:20], arguments[20:]]}},
            ]
        },
        ANY,
    ]
    async with real_server(script, tools=("quick",)) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "go")
        await ended(scope, reply.run_id)
        await server.stop()
        scope = await server.start()
        found = await state(scope)
        shown = await rows(scope)

    call = next(row.content.tool_call for row in shown if row.content.HasField("tool_call"))
    parts = next(m for m in found["messages"] if m["role"] == "assistant")["parts"]
    assert call.arguments_json == arguments
    assert base64.b64decode(parts[0]["signature"]) == b"sig/+="
    assert parts[1]["arguments_json"] == arguments


async def test_lone_surrogates_of_a_model_become_the_replacement_character() -> None:
    """Field report L2: half an emoji killed the stream."""
    script: list[dict[str, Any]] = [
        {"repeat": True, "steps": [{"text": ["a \ud83d", "\ude00 b \ud83d c"]}]}
    ]
    async with real_server([ANY]) as server:
        (server.folder / "script.yaml").write_text(json.dumps({"version": 1, "answers": script}))
        scope = await server.start()
        reply = await scope.add_message("a", "go")
        run = await ended(scope, reply.run_id)

    assert run.final_message.parts[0].text.text == "a \U0001f600 b \ufffd c"


async def test_tools_that_fail_have_outcomes_on_which_rows_state_and_events_agree() -> None:
    calls = [
        {"tool_call": {"name": "quick", "arguments": '{"text": "fine"}'}},
        {"tool_call": {"name": "failing"}},
        {"tool_call": {"name": "nothing_of_that_name"}},
        {"tool_call": {"name": "slow", "arguments": ["{not json"]}},
    ]
    async with real_server([{"steps": calls}, ANY], tools=("quick", "failing", "slow")) as server:
        scope = await server.start()
        async with scope.subscribe("a") as stream:
            reply = await scope.add_message("a", "work")
            run = await ended(scope, reply.run_id)
            steps = await last_steps(stream)
        statuses, results = await tool_statuses(scope), await tool_results(scope)
        found = await state(scope)

    assert run.run.end == agent_pb2.RUN_END_COMPLETED
    assert statuses == {
        "quick": "completed",
        "failing": "failed",
        "nothing_of_that_name": "failed",
        "slow": "failed",
    }
    assert {name for name, result in results.items() if result.is_error} == set(statuses) - {
        "quick"
    }
    assert "a secret of the tool" not in str(results) + str(found)
    assert "There is no tool" in results["nothing_of_that_name"].text
    assert "arguments" in results["slow"].text
    assert sorted(server.calls_seen) == ["failing", "quick"]
    by_call = {
        c["call_id"]: c["name"]
        for m in found["messages"]
        for c in m["parts"]
        if c["$"] == "ToolCall"
    }
    assert {by_call[call]: step for call, step in steps.items()} == statuses


async def last_steps(stream: Any) -> dict[str, str]:
    """The last step of each call, by call_id, up to the end of the run."""
    from sagentry.api.agent.v1 import event_service_pb2 as pb  # noqa: PLC0415

    steps: dict[str, str] = {}
    async with asyncio.timeout(30):
        async for item in stream:
            kind = item.event.WhichOneof("kind")
            if kind == "tool_call_updated":
                update = item.event.tool_call_updated
                name = pb.ToolCallStep.Name(update.step).removeprefix("TOOL_CALL_STEP_").lower()
                steps[update.call_id] = name
            if kind == "run_ended":
                break
    return steps


async def test_a_tool_that_ignores_its_cancel_does_not_hold_the_agent() -> None:
    script: list[dict[str, Any]] = [{"steps": [{"tool_call": {"name": "stubborn"}}]}, ANY]
    async with real_server(script, tools=("stubborn",)) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "work")
        await until(lambda: has_begun(scope))
        await scope.cancel_run("a", reply.run_id)
        run = await ended(scope, reply.run_id)
        statuses = await tool_statuses(scope)
        following = await ended(scope, (await scope.add_message("a", "again")).run_id)

    assert run.run.end == agent_pb2.RUN_END_CANCELLED
    assert statuses == {"stubborn": "cancelled"}
    assert following.run.end == agent_pb2.RUN_END_COMPLETED


async def has_begun(scope: Any) -> bool:
    return (await tool_statuses(scope)).get("stubborn") == "executing"


async def test_a_cancelled_sentence_is_kept_and_the_model_sees_it_in_the_next_turn() -> None:
    """Field report L40: the partial text was gone after a stop."""
    script: list[dict[str, Any]] = [{"steps": [{"text": "half"}, {"wait_for": "never"}]}, ANY]
    async with real_server(script) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "work")
        async with scope.subscribe("a") as stream:
            async with asyncio.timeout(30):
                async for item in stream:
                    if item.HasField("delta") or item.snapshot.growing_messages:
                        break
        await scope.cancel_run("a", reply.run_id)
        shown = await rows(scope)
        await ended(scope, (await scope.add_message("a", "again")).run_id)

    half = next(row for row in shown if said(row) == "half")
    assert half.content.stop_reason == message_pb2.MESSAGE_STATUS_CANCELLED


async def test_nothing_connects_or_resolves_anything_outside_the_machine(tmp_path: Path) -> None:
    """With a dead proxy and the ecosystem's tracing switched on everything works, and in silence."""
    watch = tmp_path / "sitecustomize.py"
    watch.write_text(WATCH)
    report = tmp_path / "report"
    environment = {
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "grpc_proxy": "http://127.0.0.1:9",
        "LANGCHAIN_TRACING_V2": "true",
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "nothing",
        "LANGSMITH_ENDPOINT": "http://192.0.2.1:1",
        "SAGENTRY_TEST_REPORT": str(report),
    }
    script: list[dict[str, Any]] = [{"steps": [{"tool_call": {"name": "quick"}}]}, ANY]
    async with real_server(script, tools=("quick",), environment=environment) as server:
        server.search_first(tmp_path)
        scope = await server.start()
        await ended(scope, (await scope.add_message("a", "work")).run_id)
        await server.stop()

    lines = report.read_text().splitlines()
    processes = {line.split()[1] for line in lines if line.startswith("watching")}
    assert len(processes) >= 2, "the server and its store"
    assert [line for line in lines if not line.startswith("watching")] == []


WATCH = """
import os, sys
_report = os.open(os.environ["SAGENTRY_TEST_REPORT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def _write(text):
    os.write(_report, (text + "\\n").encode())
_write(f"watching {os.getpid()}")
def _hook(event, args):
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
        if isinstance(address, tuple) and not str(address[0]).startswith("127.") and address[0] != "::1":
            _write(f"connect {address}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and args[0] not in (
        None, "localhost", "127.0.0.1", "::1"
    ):
        _write(f"resolve {args[0]}")
sys.addaudithook(_hook)
"""


def test_the_watch_sees_what_it_must_see(tmp_path: Path) -> None:
    """A watch that sees nothing would let the test above pass for nothing."""
    import subprocess  # noqa: PLC0415

    (tmp_path / "sitecustomize.py").write_text(WATCH)
    report = tmp_path / "report"
    subprocess.run(
        [sys.executable, "-c", "import socket; socket.getaddrinfo('sagentry.invalid', 1)"],
        env={"PYTHONPATH": str(tmp_path), "SAGENTRY_TEST_REPORT": str(report)},
        check=False,
        capture_output=True,
    )

    assert "resolve sagentry.invalid" in report.read_text()


async def test_one_request_three_times_at_once_is_one_message() -> None:
    """A client that is not sure whether its call arrived must be able to repeat it at any time."""
    async with real_server([ANY]) as server:
        scope = await server.start()
        same = [scope.add_message("a", "once", request_id="r-1") for _ in range(3)]
        replies = await asyncio.gather(*same)
        await ended(scope, replies[0].run_id)
        found = await state(scope)
        shown = [said(row) for row in await rows(scope)]

    assert len({(reply.message_id, reply.run_id) for reply in replies}) == 1
    assert [reply.replayed for reply in replies].count(False) == 1
    assert texts(found, "user") == ["once"]
    assert shown == ["once", "ok"]


async def test_server_and_store_are_processes_that_speak_tcp() -> None:
    async with real_server([ANY]) as server, server.store_over_tcp():
        server.listen_on_tcp()
        scope = await server.start()
        reply = await scope.add_message("a", "hello")
        await ended(scope, reply.run_id)
        shown = [said(row) for row in await rows(scope)]

    assert shown == ["hello", "ok"]
