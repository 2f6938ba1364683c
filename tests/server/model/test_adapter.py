# ruff: noqa: ARG002, SLF001  (the fakes have the signatures of langchain)

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from sagentry.server.domain.messages import (
    TokenUsage,
)
from sagentry.server.domain.models import (
    EndChunk,
    SignatureChunk,
    StopKind,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.from_langchain import UsageMode, stop_kind
from tests.support.conversation import (
    answer,
    calls_of,
    failing_answer,
    request,
    signatures_of,
    text_of,
    thinking_of,
)
from tests.support.provider import END, FakeProvider, block, model_of, piece, provider, text

pytestmark = pytest.mark.anyio


async def test_text_thinking_signature_calls_and_end_arrive_in_order_and_byte_for_byte() -> None:
    chunks = await answer(
        model_of(
            block(type="thinking", thinking="think ", index=0),
            block(type="thinking", thinking="hard", index=0),
            block(type="thinking", signature="c2ln\u00e4==", index=0),
            block(type="text", text="Hi", index=1),
            text("!"),
            piece(name="look_up", args="", id="toolu_1", index=2),
            piece(args='{"a":', index=2),
            piece(args="1}", index=2),
            END,
        ),
        request(),
    )
    assert chunks == [
        ThinkingChunk("think "),
        ThinkingChunk("hard"),
        SignatureChunk("c2ln\u00e4==".encode()),
        TextChunk("Hi"),
        TextChunk("!"),
        ToolCallChunk(0, "toolu_1", "look_up", ""),
        ToolCallChunk(0, arguments='{"a":'),
        ToolCallChunk(0, arguments="1}"),
        EndChunk(StopKind.STOP),
    ]


async def test_a_signature_in_pieces_is_passed_on_whole_and_two_thoughts_stay_two() -> None:
    chunks = await answer(
        model_of(
            block(type="thinking", thinking="one", signature="ab"),
            block(type="thinking", signature="cd"),
            block(type="thinking", thinking="two", signature="ef"),
            END,
        ),
        request(),
    )
    assert signatures_of(chunks) == [b"abcd", b"ef"]
    assert chunks.index(SignatureChunk(b"abcd")) < chunks.index(ThinkingChunk("two"))


async def test_half_a_signature_of_a_cut_stream_is_not_kept_as_a_signature() -> None:
    chunks, error = await failing_answer(
        model_of(block(type="thinking", thinking="one", signature="ab"), ConnectionError()),
        request(),
    )
    assert chunks == [ThinkingChunk("one")]
    assert error.retryable


async def test_thinking_of_other_providers_is_thinking_too() -> None:
    chunks = await answer(
        model_of(
            AIMessageChunk(content="", additional_kwargs={"reasoning_content": "a"}),
            block(type="reasoning", reasoning="b"),
            END,
        ),
        request(),
    )
    assert thinking_of(chunks) == "ab"


async def test_a_block_of_a_kind_that_the_server_does_not_know_does_not_break_the_answer() -> None:
    chunks = await answer(
        model_of(block(type="hologram"), block(type="hologram"), text("a"), END), request()
    )
    assert text_of(chunks) == "a"


@pytest.mark.parametrize(
    ("mode", "reports", "total"),
    [
        (UsageMode.INCREMENTS, [(10, 0), (0, 7)], (10, 7)),
        (UsageMode.INCREMENTS, [(10, 7)], (10, 7)),
        (UsageMode.TOTALS, [(10, 1), (10, 4), (10, 7)], (10, 7)),
    ],
)
async def test_tokens_are_not_counted_twice_however_the_provider_reports_them(
    mode: UsageMode, reports: list[tuple[int, int]], total: tuple[int, int]
) -> None:
    pieces = [
        AIMessageChunk(
            content="",
            usage_metadata={"input_tokens": i, "output_tokens": o, "total_tokens": i + o},
        )
        for i, o in reports
    ]
    chunks = await answer(model_of(*pieces, END, usage_mode=mode), request())
    last = [chunk for chunk in chunks if isinstance(chunk, UsageChunk)][-1].usage
    assert (last.input_tokens, last.output_tokens) == total
    assert last.cache_read_tokens is None


async def test_usage_behind_the_stop_reason_still_counts() -> None:
    usage = AIMessageChunk(
        content="",
        usage_metadata={
            "input_tokens": 9,
            "output_tokens": 5,
            "total_tokens": 14,
            "input_token_details": {"cache_read": 4, "cache_creation": 2},
            "output_token_details": {"reasoning": 3},
        },
    )
    chunks = await answer(model_of(text("a"), END, usage), request())
    assert chunks[1:] == [UsageChunk(TokenUsage(9, 5, 4, 2, 3)), EndChunk(StopKind.STOP)]


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"stop_reason": "end_turn"}, StopKind.STOP),
        ({"stop_reason": "tool_use"}, StopKind.STOP),
        ({"stop_reason": "max_tokens"}, StopKind.LENGTH),
        ({"stop_reason": "refusal"}, StopKind.CONTENT_FILTER),
        ({"finish_reason": "tool_calls"}, StopKind.STOP),
        ({"finish_reason": "length"}, StopKind.LENGTH),
        ({"finish_reason": "content_filter"}, StopKind.CONTENT_FILTER),
        ({"finish_reason": "MAX_TOKENS"}, StopKind.LENGTH),
        ({"finish_reason": "SAFETY"}, StopKind.CONTENT_FILTER),
        ({"done_reason": "stop"}, StopKind.STOP),
        ({"finish_reason": "something new"}, StopKind.STOP),
        ({"status": "completed"}, StopKind.STOP),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            StopKind.LENGTH,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            StopKind.CONTENT_FILTER,
        ),
        ({"status": "in_progress"}, None),
        ({"finish_reason": None}, None),
        ({"model_name": "x"}, None),
    ],
)
def test_an_answer_that_was_cut_off_is_not_taken_for_a_whole_one(
    metadata: dict[str, object], kind: StopKind | None
) -> None:
    assert stop_kind(metadata) is kind


async def test_a_stream_that_ends_without_a_reason_is_cut_and_what_came_is_kept() -> None:
    chunks, error = await failing_answer(model_of(text("half a sen")), request())
    assert chunks == [TextChunk("half a sen")]
    assert (error.reason, error.retryable) == ("MODEL_STREAM_CUT", True)


async def test_a_connection_that_fails_behind_a_whole_answer_does_not_cost_the_answer() -> None:
    chunks = await answer(model_of(text("whole"), END, ConnectionError()), request())
    assert chunks == [TextChunk("whole"), EndChunk(StopKind.STOP)]


async def test_a_model_that_does_not_stream_still_answers_with_its_calls() -> None:
    class Whole(FakeProvider):
        _astream = BaseChatModel._astream

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            said = AIMessage(
                content="hi",
                tool_calls=[{"name": "look_up", "args": {"ä": 2**60}, "id": "x"}],
                invalid_tool_calls=[{"name": "bad", "args": "{", "id": "y", "error": None}],
                response_metadata={"finish_reason": "stop"},
            )
            return ChatResult(generations=[ChatGeneration(message=said)])

    chunks = await answer(LangChainModel("m", Whole(chunks=[])), request())
    assert text_of(chunks) == "hi"
    assert calls_of(chunks) == {
        0: ("x", "look_up", '{"ä": 1152921504606846976}'),
        1: ("y", "bad", "{"),
    }
    assert chunks[-1] == EndChunk(StopKind.STOP)


async def test_closing_the_answer_closes_the_connection_at_once() -> None:
    fake = provider(text("a"), text("b"), END)
    async with aclosing(LangChainModel("m", fake).stream(request())) as stream:
        assert await anext(stream) == TextChunk("a")
        assert fake.closed == []
    assert fake.closed == [True]


async def test_cancelling_the_run_closes_the_connection() -> None:
    entered = asyncio.Event()

    class Waiting(FakeProvider):
        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            try:
                yield ChatGenerationChunk(message=text("a"))
                entered.set()
                await asyncio.Event().wait()
            finally:
                self.closed.append(True)

    fake = Waiting(chunks=[])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(answer(LangChainModel("m", fake), request()))
        await entered.wait()
        task.cancel()
    assert fake.closed == [True]


# Failures of providers.


class HTTPError(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        super().__init__("key sk-123 was refused by https://example.invalid")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(status_code=status, headers=names)


class APIConnectionError(Exception):
    pass


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("raised", "reason", "retryable", "after"),
    [
        (HTTPError(401), "MODEL_AUTHENTICATION", False, None),
        (HTTPError(400), "MODEL_REQUEST_INVALID", False, None),
        (HTTPError(413), "MODEL_REQUEST_INVALID", False, None),
        (HTTPError(429, retry_after="7"), "MODEL_RATE_LIMITED", True, 7),
        (HTTPError(429, retry_after_ms="250"), "MODEL_RATE_LIMITED", True, 0.25),
        (HTTPError(429, retry_after="Wed, 21 Oct 2025"), "MODEL_RATE_LIMITED", True, None),
        (HTTPError(529), "MODEL_OVERLOADED", True, None),
        (HTTPError(502), "MODEL_UNAVAILABLE", True, None),
        (HTTPError(418), "MODEL_FAILED", False, None),
        (caused(RuntimeError("x"), HTTPError(503)), "MODEL_OVERLOADED", True, None),
        (ConnectionResetError(), "MODEL_UNAVAILABLE", True, None),
        (TimeoutError(), "MODEL_UNAVAILABLE", True, None),
        (APIConnectionError(), "MODEL_UNAVAILABLE", True, None),
        (ValueError("content"), "MODEL_FAILED", False, None),
    ],
)
async def test_a_provider_that_fails_is_retried_only_where_that_helps(
    raised: Exception, reason: str, *, retryable: bool, after: float | None
) -> None:
    chunks, error = await failing_answer(model_of(text("a"), raised), request())
    assert chunks == [TextChunk("a")]
    assert (error.reason, error.retryable) == (reason, retryable)
    assert error.retry_after == (None if after is None else timedelta(seconds=after))
    assert not any(word in error.message for word in ("sk-123", "example.invalid", "content"))


async def test_a_model_without_tools_says_so_instead_of_answering_without_them() -> None:
    model = LangChainModel("m", FakeListChatModel(responses=["a"]))
    _, error = await failing_answer(model, request(tools=["look_up"]))
    assert error.reason == "MODEL_FAILED"


async def test_a_long_tool_call_does_not_freeze_the_server() -> None:
    """Counts function calls: merging chunks would parse all arguments again for each piece."""

    async def cost(count: int) -> int:
        sent = [piece(name="f", args='{"a": "', id="1", index=0)]
        sent += [piece(args="words ", index=0) for _ in range(count)]
        model = model_of(*sent, END)
        calls = 0

        def count_call(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_call)
        try:
            chunks = await answer(model, request())
        finally:
            sys.setprofile(None)
        assert len(chunks) == count + 2
        return calls

    few, many = await cost(250), await cost(8000)
    assert many < few * 8000 / 250 * 1.1


@pytest.mark.parametrize(
    "variables", [("LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING"), ("LANGCHAIN_TRACING",)]
)
def test_the_tracing_variables_of_the_ecosystem_send_nothing_anywhere(
    variables: tuple[str, ...],
) -> None:
    program = """
import asyncio, socket, sys, threading
def refuse(*args, **kwargs):
    print("NETWORK", args); raise OSError("no network")
sys.addaudithook(
    lambda event, args: event in {"socket.connect", "socket.getaddrinfo"} and refuse(event, args)
)
from pathlib import Path
from sagentry.server.model.factory import build_model
from tests.support.conversation import answer, request, text_of, user
async def main():
    model = build_model("script:demo", base_dir=Path("."))
    for _ in range(3):
        print(text_of(await answer(model, request(user("hello"), tools=["calculate"])))[:6])
asyncio.run(main())
print(sorted(t.name for t in threading.enumerate()))
"""
    environment = dict.fromkeys(variables, "true") | {
        "LANGSMITH_API_KEY": "lsv2_pt_x",
        "LANGCHAIN_API_KEY": "x",
        "LANGSMITH_ENDPOINT": "http://203.0.113.1:9",
        "http_proxy": "http://203.0.113.1:9",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Hello!"] * 3 + ["['MainThread']"]
