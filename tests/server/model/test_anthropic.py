"""Anthropic's adapter against a server that speaks its form: what comes in, and what is sent back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sagentry.server.domain.messages import OpaquePart, TextPart, ThinkingPart
from sagentry.server.domain.models import (
    EndChunk,
    ModelCallError,
    ModelChunk,
    OpaqueChunk,
    StopKind,
    UsageChunk,
)
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.factory import build_model
from sagentry.server.model.providers import ModelSpecError
from sagentry.server.model_ports import ChatModel, ModelOptions
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
from tests.support.provider_server import (
    CUT,
    Answer,
    begun,
    block,
    ended,
    event,
    failure,
    provider_server,
    text_block,
    thinking_block,
    tool_block,
)

pytestmark = pytest.mark.anyio

KEY = {"ANTHROPIC_API_KEY": "secret-key"}


def model_at(url: str, **options: Any) -> ChatModel:
    return build_model(
        "anthropic:claude-x",
        base_dir=Path(),
        options=ModelOptions(base_url=url, **options),
        environ=KEY,
    )


async def answered(
    *pieces: bytes, tools: Sequence[str] = ()
) -> tuple[list[ModelChunk], dict[str, Any]]:
    asked = request(system_prompt="Be kind.", tools=tools)
    async with provider_server(Answer(pieces)) as server:
        chunks = await answer(model_at(server.url), asked)
    return chunks, server.asked[0]


async def failed(reply: Answer) -> tuple[list[ModelChunk], ModelCallError]:
    async with provider_server(reply) as server:
        chunks, error = await failing_answer(model_at(server.url), request())
    # The server retries, not the adapter.
    assert len(server.asked) == 1
    assert "secret" not in str(error)
    return chunks, error


def end_of(chunks: list[ModelChunk]) -> StopKind:
    assert isinstance(chunks[-1], EndChunk)
    return chunks[-1].stop


async def test_text_comes_piece_by_piece_with_its_end_and_its_cost() -> None:
    chunks, asked = await answered(begun(), *text_block(0, "Hel", "lo \U0001f44b"), *ended())

    assert text_of(chunks) == "Hello \U0001f44b"
    usage = [one.usage for one in chunks if isinstance(one, UsageChunk)][-1]
    # What was read from the cache is a part of what went in.
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (14, 5, 4)
    assert end_of(chunks) is StopKind.STOP
    assert asked["model"] == "claude-x"
    assert asked["max_tokens"] == 8192
    assert asked["system"] == "Be kind."
    assert asked["stream"] is True


async def test_signed_thinking_goes_back_byte_for_byte() -> None:
    first = Answer(
        (
            begun(),
            *thinking_block(0, ["c2ln", "bmVk/+="], "I thi", "nk"),
            *text_block(1, "So."),
            *tool_block(2, "toolu_1", "look", '{"a', '": 1}'),
            *ended("tool_use"),
        )
    )
    second = Answer((begun(), *text_block(0, "Done."), *ended()))
    async with provider_server(first, second) as server:
        model = model_at(server.url, thinking_tokens=2048)
        chunks = await answer(model, request(tools=["look"]))
        thought = ThinkingPart(thinking_of(chunks), signatures_of(chunks)[0])
        asked_for = call("c1", "look", text=calls_of(chunks)[0][2], provider_call_id="toolu_1")
        before = assistant(thought, TextPart(text_of(chunks)), asked_for)
        found = results(result("c1", "found", "look"))
        await answer(model, request(user("hello"), before, found, tools=["look"]))

    assert thinking_of(chunks) == "I think"
    assert signatures_of(chunks) == [b"c2lnbmVk/+="]
    assert server.asked[0]["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert server.asked[0]["tools"][0]["name"] == "look"
    sent = server.asked[1]["messages"]
    assert sent[1]["content"][0] == {
        "type": "thinking",
        "thinking": "I think",
        "signature": "c2lnbmVk/+=",
    }
    assert sent[1]["content"][-1]["id"] == "toolu_1"
    assert sent[1]["content"][-1]["input"] == {"a": 1}
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"
    assert "found" in json.dumps(sent[2]["content"][0]["content"])


async def test_thinking_that_nobody_can_read_goes_back_as_it_came() -> None:
    """The provider refuses a conversation that lacks it."""
    hidden = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk/+=="}
    first = Answer((begun(), *block(0, hidden), *text_block(1, "So."), *ended()))
    second = Answer((begun(), *text_block(0, "Yes."), *ended()))
    async with provider_server(first, second) as server:
        model = model_at(server.url, thinking_tokens=2048)
        chunks = await answer(model, request())
        kept = [OpaquePart(one.document) for one in chunks if isinstance(one, OpaqueChunk)]
        before = assistant(*kept, TextPart(text_of(chunks)))
        await answer(model, request(user("hello"), before, user("and?")))

    assert len(kept) == 1
    assert server.asked[1]["messages"][1]["content"][0] == hidden


async def test_calls_side_by_side_keep_their_pieces_apart() -> None:
    chunks, _ = await answered(
        begun(),
        *tool_block(0, "toolu_1", "one", '{"n"', ": 1", "}"),
        *tool_block(1, "toolu_2", "two"),
        *tool_block(2, "toolu_3", "one", '{"n": 9007199254740993}'),
        *ended("tool_use"),
        tools=["one", "two"],
    )

    assert list(calls_of(chunks).values()) == [
        ("toolu_1", "one", '{"n": 1}'),
        ("toolu_2", "two", ""),
        ("toolu_3", "one", '{"n": 9007199254740993}'),
    ]


async def test_reports_of_tokens_are_totals_and_are_not_added_up() -> None:
    chunks, _ = await answered(begun(), *text_block(0, "Hi"), ended(output_tokens=3)[0], *ended())

    usage = [one.usage for one in chunks if isinstance(one, UsageChunk)][-1]
    assert (usage.input_tokens, usage.output_tokens) == (14, 5)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize(
    "variables",
    [
        {"LANGSMITH_GATEWAY": "true", "LANGSMITH_API_KEY": "k"},
        {"OPENAI_API_BASE": "http://127.0.0.1:9", "ANTHROPIC_API_URL": "http://127.0.0.1:9"},
        {"OPENAI_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
    ],
    ids=["gateway", "adapters", "libraries"],
)
def test_no_variable_sends_a_conversation_anywhere_but_to_the_provider(
    provider: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environ = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    model = build_model(f"{provider}:x", base_dir=Path(), environ=environ)

    assert isinstance(model, LangChainModel)
    chat: Any = model._model  # noqa: SLF001 - its address is what it is about
    client = chat._async_client if provider == "anthropic" else chat.root_async_client  # noqa: SLF001
    assert client.base_url.host == f"api.{provider}.com"


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_tokens", StopKind.LENGTH), ("refusal", StopKind.CONTENT_FILTER)],
)
async def test_an_answer_that_ends_early_says_why(reason: str, stop: StopKind) -> None:
    chunks, _ = await answered(begun(), *text_block(0, "Half"), *ended(reason))

    assert end_of(chunks) is stop


@pytest.mark.parametrize(
    ("status", "kind", "reason", "retryable"),
    [
        (401, "authentication_error", "MODEL_AUTHENTICATION", False),
        (404, "not_found_error", "MODEL_REQUEST_INVALID", False),
        (429, "rate_limit_error", "MODEL_RATE_LIMITED", True),
        (500, "api_error", "MODEL_UNAVAILABLE", True),
        (529, "overloaded_error", "MODEL_OVERLOADED", True),
    ],
)
async def test_refusals_are_told_apart(
    status: int, kind: str, reason: str, *, retryable: bool
) -> None:
    body = {"type": "error", "error": {"type": kind, "message": "secret"}}
    _, error = await failed(failure(status, body, retry_after="7"))

    assert (error.reason, error.retryable) == (reason, retryable)
    assert error.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("overloaded_error", "MODEL_OVERLOADED"), ("odd_error", "MODEL_UNAVAILABLE")],
)
async def test_a_failure_in_mid_answer_keeps_what_came_before(kind: str, reason: str) -> None:
    told = event("error", error={"type": kind, "message": "secret"})
    chunks, error = await failed(Answer((begun(), *text_block(0, "Half")[:2], told)))

    assert text_of(chunks) == "Half"
    assert (error.reason, error.retryable) == (reason, True)


@pytest.mark.parametrize("end", [(CUT,), ()], ids=["reset", "closed"])
async def test_a_stream_that_is_cut_keeps_what_came_before(end: tuple[bytes, ...]) -> None:
    chunks, error = await failed(Answer((begun(), *text_block(0, "Half")[:2], *end)))

    assert text_of(chunks) == "Half"
    assert error.retryable
    assert error.reason in {"MODEL_STREAM_CUT", "MODEL_UNAVAILABLE"}


async def test_a_provider_that_is_not_there_is_unavailable() -> None:
    _, error = await failing_answer(model_at("http://127.0.0.1:9"), request())

    assert (error.reason, error.retryable) == ("MODEL_UNAVAILABLE", True)


@pytest.mark.parametrize(
    ("spec", "options", "environ", "words"),
    [
        ("anthropic:x", {}, {}, "set the environment variable ANTHROPIC_API_KEY"),
        ("anthropic:x", {"api_key_env": "MY_KEY"}, KEY, "set the environment variable MY_KEY"),
        ("anthropic:", {}, KEY, "name the model, for example anthropic:claude"),
        ("anthropic:x", {"thinking_tokens": 9000}, KEY, "less than max_tokens"),
        ("anthropic:x", {"reasoning_effort": "low"}, KEY, "reasoning_effort is for openai"),
        ("antropic:x", {}, KEY, "not a model; write anthropic:MODEL"),
        ("script:demo", {"max_tokens": 5}, KEY, "a script takes no options"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(
    spec: str, options: dict[str, Any], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ModelSpecError, match=words):
        build_model(spec, base_dir=Path(), options=ModelOptions(**options), environ=environ)
