from __future__ import annotations

import asyncio
import gc
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagentry.server.domain.messages import ToolCall
from sagentry.server.domain.models import ToolSpec
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.domain.tools import ToolFailure, ToolOutcome
from sagentry.server.errors import ToolError
from sagentry.server.model_ports import Tool, ToolContext
from sagentry.server.tools.function_tool import FunctionTool, tool
from sagentry.server.tools.runner import (
    MAX_RESULT_BYTES,
    ToolRunner,
    _result_text,
    parse_arguments,
)

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext("call-1", "a", "c", Scope(ScopeKey(ScopeKind.UNSCOPED)))
SOON = timedelta(milliseconds=20)
NEVER = timedelta(seconds=50)
"""Longer than a test may take: whoever waits for it fails."""


async def outcome_of(
    found: Tool | None, arguments: str = "{}", runner: ToolRunner | None = None, **more: Any
) -> ToolOutcome:
    name = "gone" if found is None else found.spec.name
    runner = runner or ToolRunner(cancel_grace=SOON)
    return await runner.run(ToolCall("call-1", name, arguments), found, CONTEXT, **more)


@tool
async def echo(value: Any = None) -> Any:
    return value


async def test_a_call_runs_and_is_told_its_idempotency_key() -> None:
    @tool
    async def who(context: ToolContext) -> str:
        return context.call_id

    assert await outcome_of(who) == ToolOutcome("call-1")


async def test_a_model_that_invents_a_tool_is_told_which_there_are() -> None:
    outcome = await outcome_of(None, known=["b", "a"])
    assert (outcome.reason, outcome.is_error) == (ToolFailure.UNKNOWN_TOOL, True)
    assert outcome.text == "There is no tool 'gone'. Tools: a, b."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"value": 1', "not JSON: Expecting ',' delimiter at character 11 of 11"),
        ("value", "not JSON"),
        ("[1]", "this is an array"),
        ('"a"', "this is a string"),
        ("null", "this is null"),
        ("1.5", "this is a number"),
        ("true", "this is a boolean"),
        ('{"value": NaN}', "beyond what is supported"),
        ('{"value": ' + "9" * 5000 + "}", "beyond what is supported"),
        ('{"value": ' + "[" * 100_000, "beyond what is supported"),
        ('{"values": 1}', "values: Extra inputs"),
    ],
)
async def test_wrong_arguments_do_not_reach_the_tool_and_the_model_learns_what_is_wrong(
    arguments: str, words: str
) -> None:
    outcome = await outcome_of(echo, arguments)
    assert outcome.reason is ToolFailure.ARGUMENTS_INVALID
    assert words in outcome.text


async def test_exact_arguments_reach_the_tool_exactly() -> None:
    nested = "[" * 60 + "9007199254740993" + "]" * 60
    assert (await outcome_of(echo, f'{{"value": {nested}}}')).text == nested
    assert parse_arguments(" ") == {}
    assert parse_arguments('{"\\ud83d": "\\ud83d\\ude00\\udc00"}') == {"\ufffd": "😀\ufffd"}


async def test_a_tool_that_never_returns_ends_at_its_limit() -> None:
    @tool(time_limit=SOON)
    async def forever() -> None:
        await asyncio.Event().wait()

    outcome = await outcome_of(forever)
    assert outcome.reason is ToolFailure.TIME_LIMIT
    assert outcome.text == "forever took longer than its limit of 0.02 seconds and was given up."


async def test_a_tool_that_ignores_its_cancellation_ends_all_the_same() -> None:
    cancelled = 0

    @tool(time_limit=SOON)
    async def stubborn() -> None:
        nonlocal cancelled
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1

    assert (await outcome_of(stubborn)).reason is ToolFailure.TIME_LIMIT
    assert cancelled == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_tool_that_resists_everything_does_not_keep_its_run() -> None:
    @tool(time_limit=SOON)
    async def immortal() -> None:
        for _ in range(1000):
            try:
                await asyncio.Event().wait()
            except BaseException:  # noqa: BLE001, S112
                continue

    assert (await outcome_of(immortal)).reason is ToolFailure.TIME_LIMIT
    gc.collect()


async def test_a_tool_may_clean_up_when_its_time_is_over_and_its_late_result_is_dropped() -> None:
    cleaned = asyncio.Event()

    @tool(time_limit=SOON)
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.set()
        return "late"

    outcome = await outcome_of(tidy, runner=ToolRunner(cancel_grace=NEVER))
    assert outcome.reason is ToolFailure.TIME_LIMIT
    assert cleaned.is_set()


async def test_a_tool_that_uses_timeouts_itself_is_not_disturbed() -> None:
    @tool
    async def patient() -> str:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                continue
        return "done"

    assert await outcome_of(patient, runner=ToolRunner(cancel_grace=timedelta())) == ToolOutcome(
        "done"
    )


async def test_cancelling_the_run_ends_a_tool_that_ignores_it() -> None:
    entered = asyncio.Event()

    @tool
    async def stubborn() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()
        return "late"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(outcome_of(stubborn))
        await entered.wait()
        task.cancel()
    assert task.cancelled()


async def test_a_run_that_is_cancelled_at_once_leaves_nothing_unfinished() -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outcome_of(echo))
        asyncio.get_running_loop().call_soon(task.cancel)
    assert task.cancelled()


async def test_a_blocking_tool_does_not_hold_up_others_and_ends_at_its_limit() -> None:
    release = threading.Event()

    @tool(time_limit=SOON)
    def blocking() -> str:
        release.wait(50)
        return "late"

    runner = ToolRunner()
    outcome = await outcome_of(blocking, runner=runner)
    assert outcome.reason is ToolFailure.TIME_LIMIT
    assert runner.abandoned_threads == 1
    release.set()
    await ended(runner)


async def ended(runner: ToolRunner) -> None:
    """Returns when no thread hangs any more."""
    while runner.abandoned_threads:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_hung_threads_take_no_place_from_other_calls_until_there_are_too_many() -> None:
    release = threading.Event()
    ran: list[str] = []

    @tool(time_limit=SOON)
    def hang() -> None:
        release.wait(50)

    @tool
    def work() -> str:
        ran.append(threading.current_thread().name)
        return "done"

    runner = ToolRunner(most_calls=1, most_abandoned_threads=3)
    for _ in range(2):
        await outcome_of(hang, runner=runner)
    assert await outcome_of(work, runner=runner) == ToolOutcome("done")
    await outcome_of(hang, runner=runner)
    refused = await outcome_of(work, runner=runner)
    assert refused.reason is ToolFailure.TOOLS_EXHAUSTED
    assert await outcome_of(echo, '{"value": "async"}', runner) == ToolOutcome("async")
    release.set()
    await ended(runner)
    assert await outcome_of(work, runner=runner) == ToolOutcome("done")
    assert ran == ["tool-work", "tool-work"]


async def test_cancelling_a_run_leaves_its_blocking_tool_behind() -> None:
    entered, release = threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        entered.set()
        release.wait(50)

    runner = ToolRunner()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outcome_of(hang, runner=runner))
        await asyncio.to_thread(entered.wait)
        task.cancel()
    assert task.cancelled()
    assert runner.abandoned_threads == 1
    release.set()
    await ended(runner)


async def test_only_so_many_calls_run_at_once_and_waiting_does_not_count_as_running() -> None:
    running, most = 0, 0

    @tool(time_limit=timedelta(seconds=5))
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    runner = ToolRunner(most_calls=2)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome_of(busy, runner=runner)) for _ in range(9)]
    assert most == 2
    assert {task.result() for task in tasks} == {ToolOutcome("")}


def raising(error: BaseException) -> list[FunctionTool]:
    async def later() -> None:
        await asyncio.sleep(0)
        raise error

    def at_once() -> None:
        raise error

    return [FunctionTool(later, name="t"), FunctionTool(at_once, name="t")]


@pytest.mark.parametrize("index", [0, 1])
async def test_a_tool_that_says_why_it_failed_is_quoted(index: int) -> None:
    outcome = await outcome_of(raising(ToolError("no such city"))[index])
    assert outcome == ToolOutcome("no such city", ToolFailure.TOOL_ERROR)
    assert (await outcome_of(raising(ToolError())[index])).text == "t failed."


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        SystemExit("secret"),
        asyncio.CancelledError("secret"),
        StopIteration("secret"),
        RecursionError("secret"),
    ],
)
async def test_a_tool_that_breaks_ends_neither_the_server_nor_shows_its_insides(
    error: BaseException, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await outcome_of(raising(error)[index])
    assert outcome.reason is ToolFailure.TOOL_FAULT
    assert "secret" not in outcome.text
    error_id = outcome.text.split("error id ")[1].rstrip(").")
    assert error_id.startswith("err-")
    assert error_id in caplog.text


async def test_a_tool_that_fails_before_it_returns_an_awaitable_is_a_fault_too() -> None:
    class Broken:
        spec = ToolSpec("broken", "", "{}")
        display_text = ""
        read_only = True
        time_limit = SOON

        def run(self, _arguments: object, _context: object) -> Any:
            raise ValueError

    assert (await outcome_of(Broken())).reason is ToolFailure.TOOL_FAULT


async def test_half_a_character_in_a_result_does_not_break_the_conversation() -> None:
    assert (await outcome_of(echo, '{"value": "x"}')).text == "x"

    @tool
    def broken() -> str:
        return "a\ud83d\ude00\ud83d"

    assert (await outcome_of(broken)).text == "a😀\ufffd"


@given(st.text(min_size=1, max_size=3), st.integers(0, 4))
def test_a_long_result_is_cut_on_a_character_and_says_so(unit: str, extra: int) -> None:
    unit = unit.encode("utf-8", "replace").decode()
    source = "x" * extra + unit * (MAX_RESULT_BYTES // len(unit.encode()) + 1)
    cut = _result_text(source)
    assert len(cut.encode()) <= MAX_RESULT_BYTES
    if len(source.encode()) > MAX_RESULT_BYTES:
        kept, mark = cut.rsplit("\n", 1)
        assert source.startswith(kept)
        assert str(len(source.encode())) in mark
        assert len(cut.encode()) > MAX_RESULT_BYTES - 4
    else:
        assert cut == source


async def test_a_result_at_the_limit_is_whole() -> None:
    whole = "ä" * (MAX_RESULT_BYTES // 2)
    assert _result_text(whole) == whole


async def test_the_server_can_end_while_a_blocking_tool_hangs() -> None:
    program = """
import asyncio, threading
from datetime import timedelta
from sagentry.server.domain.messages import ToolCall
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.model_ports import ToolContext
from sagentry.server.tools.function_tool import tool
from sagentry.server.tools.runner import ToolRunner
@tool(time_limit=timedelta(milliseconds=10))
def hang() -> None:
    threading.Event().wait()
async def main():
    context = ToolContext("c", "a", "c", Scope(ScopeKey(ScopeKind.UNSCOPED)))
    print((await ToolRunner().run(ToolCall("c", "hang", "{}"), hang, context)).reason)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=-1, env={"PYTHONPATH": ":".join(sys.path)}
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, output.strip()) == (0, b"ToolFailure.TIME_LIMIT")
