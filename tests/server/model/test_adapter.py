# ruff: noqa: ANN401, ARG002, SLF001  (the fakes have the signatures of langchain)

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolResult,
)
from sagentry.server.domain.models import (
    EndChunk,
    ModelCallError,
    ModelChunk,
    SignatureChunk,
    StopKind,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.from_langchain import ChunkTranslator, UsageMode, stop_kind
from sagentry.server.model.to_langchain import opaque_media_type, to_langchain
from tests.support.conversation import (
    answer,
    assistant,
    call,
    calls_of,
    failing_answer,
    request,
    result,
    results,
    signatures_of,
    text_of,
    thinking_of,
    user,
)

pytestmark = pytest.mark.anyio

END = AIMessageChunk(content="", response_metadata={"stop_reason": "end_turn"})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeProvider(BaseChatModel):
    """Sends the chunks it is given; records what it was asked and whether it was closed."""

    chunks: list[Any]
    asked: list[tuple[list[BaseMessage], dict[str, Any]]] = Field(default_factory=list)
    closed: list[bool] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.asked.append((messages, kwargs))
        try:
            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield ChatGenerationChunk(message=chunk)
        finally:
            self.closed.append(True)


def provider(*chunks: object) -> FakeProvider:
    return FakeProvider(chunks=list(chunks))


def model_of(*chunks: object, **settings: Any) -> LangChainModel:
    return LangChainModel("m", provider(*chunks), **settings)


def text(piece: str) -> AIMessageChunk:
    return AIMessageChunk(content=piece)


def block(**fields: object) -> AIMessageChunk:
    return AIMessageChunk(content=[dict(fields)])


def piece(**fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(**fields)])


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


# What the model is told.


async def test_the_conversation_reaches_the_model_whole() -> None:
    fake = provider(text("a"), END)
    asked = request(
        user("q", MediaPart(MediaKind.IMAGE, "image/png", "x.png", data=b"\x00png")),
        assistant(
            ThinkingPart("hm", "sïg".encode()),
            "Looking.",
            call("call-1", arguments={"n": 2**53 + 1}, provider_call_id="toolu_9"),
            call("call-2"),
        ),
        results(
            ToolResult("call-1", "look_up", (TextPart("no"),), is_error=True), result("call-2")
        ),
        user("r"),
        tools=["look_up"],
        system_prompt="Be kind.",
    )
    await answer(LangChainModel("m", fake, provider="p"), asked)
    messages, arguments = fake.asked[0]
    assert [m.type for m in messages] == ["system", "human", "ai", "tool", "tool", "human"]
    assert messages[1].content[1] == {
        "type": "image",
        "mime_type": "image/png",
        "extras": {"filename": "x.png"},
        "base64": "AHBuZw==",
    }
    said = messages[2]
    assert isinstance(said, AIMessage)
    assert said.content[0] == {"type": "thinking", "thinking": "hm", "signature": "sïg"}
    assert [(c["id"], c["args"]) for c in said.tool_calls] == [
        ("toolu_9", {"n": 2**53 + 1}),
        ("call-2", {}),
    ]
    assert [
        (m.tool_call_id, m.status, m.content) for m in messages if isinstance(m, ToolMessage)
    ] == [
        ("toolu_9", "error", "no"),
        ("call-2", "success", "done"),
    ]
    assert arguments["tools"][0]["function"]["name"] == "look_up"


def test_opaque_parts_go_back_to_their_own_provider_only() -> None:
    own = OpaquePart(
        Document(opaque_media_type("p"), json='{"type": "redacted_thinking", "data": "x"}')
    )
    foreign = OpaquePart(Document(opaque_media_type("other"), json='{"type": "y"}'))
    messages = to_langchain(request(user("q"), assistant(own, foreign, "a"), user("r")), "p")
    assert messages[1].content == [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "a"},
    ]


def test_half_a_character_in_old_arguments_does_not_break_every_later_request() -> None:
    asked = request(
        user("q"),
        assistant(call("c", text='{"a": ["\\ud83d", "\\ud83d\\ude00"]}')),
        results(result("c")),
    )
    message = to_langchain(asked, "")[1]
    assert isinstance(message, AIMessage)
    assert message.tool_calls[0]["args"] == {"a": ["\ufffd", "😀"]}
    json.dumps(message.tool_calls[0]["args"], ensure_ascii=False).encode()


# Text and arguments survive however they are cut.

strange = st.text(st.one_of(st.sampled_from("aé😀\u200f\u0301\x00"), st.characters()), max_size=30)


def split(source: str, cuts: list[int]) -> list[str]:
    """Cuts text between UTF-16 units, as a provider does that thinks in them."""
    units = source.encode("utf-16-le", "surrogatepass")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    places = sorted({cut % (len(halves) + 1) for cut in cuts})
    bounds = [0, *places, len(halves)]
    return ["".join(halves[a:b]) for a, b in itertools.pairwise(bounds)]


@settings(max_examples=200, deadline=None)
@given(
    strange,
    st.lists(st.integers(0, 200), max_size=8),
    st.sampled_from(["text", "thinking", "arguments"]),
)
def test_no_character_is_lost_wherever_the_provider_cuts(
    source: str, cuts: list[int], kind: str
) -> None:
    translator = ChunkTranslator()
    chunks: list[ModelChunk] = []
    for part in split(source, cuts):
        if kind == "text":
            sent = AIMessageChunk.model_construct(content=part)
        elif kind == "thinking":
            sent = AIMessageChunk.model_construct(content=[{"type": "thinking", "thinking": part}])
        else:
            raw = {"name": "f", "id": "1", "index": 0, "args": part}
            sent = AIMessageChunk.model_construct(content="", tool_call_chunks=[raw])
        chunks += translator.translate(sent, None)
    chunks += translator.finish()
    if kind == "arguments":
        got = calls_of(chunks)[0][2]
        assert all(isinstance(c, ToolCallChunk) and (c.arguments or c.name) for c in chunks)
    else:
        got = text_of(chunks) + thinking_of(chunks)
        assert all(isinstance(c, TextChunk | ThinkingChunk) and c.text for c in chunks)
    assert got == source
    assert translator.replaced == 0


async def test_half_a_character_becomes_a_mark_and_is_counted() -> None:
    model = model_of(
        text("a\ud83d"),
        text("b\ude00"),
        block(type="thinking", thinking="\ud83d"),
        piece(name="f", args="\ud83d", id="1", index=0),
        piece(name="f", args="", id="2", index=1),
        END,
    )
    chunks = await answer(model, request())
    assert text_of(chunks) == "a\ufffdb\ufffd"
    assert thinking_of(chunks) == "\ufffd"
    assert calls_of(chunks)[0][2] == "\ufffd"
    assert model.replaced_surrogates == 4


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from(["numbered", "blocks", "all zero", "no index"]),
    st.data(),
)
def test_parallel_calls_are_told_apart_however_a_provider_numbers_them(
    sources: list[str], style: str, data: st.DataObject
) -> None:
    translator = ChunkTranslator()
    chunks: list[ModelChunk] = []
    for number, source in enumerate(sources):
        index = {"numbered": number, "blocks": 2 * number + 1, "all zero": 0, "no index": None}[
            style
        ]
        pieces = split(source, data.draw(st.lists(st.integers(0, 20), max_size=3)))
        first = {"name": "f", "id": f"id-{number}", "index": index, "args": ""}
        rest = [{"name": None, "id": None, "index": index, "args": part} for part in pieces]
        for raw in [first, *rest]:
            sent = AIMessageChunk.model_construct(content="", tool_call_chunks=[raw])
            chunks += translator.translate(sent, None)
    chunks += translator.finish()
    repaired = [source.encode("utf-16-le", "replace").decode("utf-16-le") for source in sources]
    assert calls_of(chunks) == {n: (f"id-{n}", "f", text) for n, text in enumerate(repaired)}


async def test_pieces_of_two_calls_that_alternate_stay_apart() -> None:
    chunks = await answer(
        model_of(
            piece(name="f", args="1", id="a", index=0),
            piece(name="g", args="2", id="b", index=1),
            piece(args="3", index=0),
            piece(args="4", id="b", index=1),
            piece(args="5", id="b", index=0),
            END,
        ),
        request(),
    )
    assert calls_of(chunks) == {0: ("a", "f", "13"), 1: ("b", "g", "245")}


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


def test_a_history_that_was_written_by_another_program_is_refused_in_words() -> None:
    broken = [
        (assistant(ThinkingPart("hm", b"\xff"), "a"), "a signature of thinking is not text"),
        (assistant(call("c", text="[1]")), "arguments of the call look_up are not a JSON object"),
        (assistant(call("c", text="{")), "arguments of the call look_up are not a JSON object"),
    ]
    for message, words in broken:
        with pytest.raises(ModelCallError, match=words) as caught:
            to_langchain(request(user("q"), message), "")
        assert caught.value.reason == "HISTORY_INVALID"


def test_media_by_address_and_a_result_with_an_image_reach_the_model() -> None:
    image = MediaPart(MediaKind.IMAGE, "", url="https://example.invalid/x.png")
    shown = ToolResult("c", "look_up", (TextPart("see"), image))
    messages = to_langchain(request(user(image), assistant(call("c")), results(shown)), "")
    block = {"type": "image", "url": "https://example.invalid/x.png"}
    assert messages[0].content == [block]
    assert messages[1].content == ""
    assert messages[2].content == [{"type": "text", "text": "see"}, block]
