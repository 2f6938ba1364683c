"""OpenAI's adapter against a server that speaks chat completions: what comes in, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sagentry.server.domain.models import (
    EndChunk,
    ModelCallError,
    ModelChunk,
    StopKind,
    UsageChunk,
)
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
    text_of,
    thinking_of,
    user,
)
from tests.support.provider_server import (
    CUT,
    DONE,
    Answer,
    call_piece,
    chunk,
    failure,
    provider_server,
    usage_chunk,
)

pytestmark = pytest.mark.anyio


def model_at(url: str, **options: Any) -> ChatModel:
    return build_model(
        "openai:gpt-x",
        base_dir=Path(),
        options=ModelOptions(base_url=f"{url}/v1", **options),
        environ={"OPENAI_API_KEY": "secret-key"},
    )


async def answered(
    *pieces: bytes, tools: Sequence[str] = (), **options: Any
) -> tuple[list[ModelChunk], dict[str, Any]]:
    asked = request(system_prompt="Be kind.", tools=tools)
    async with provider_server(Answer(pieces)) as server:
        chunks = await answer(model_at(server.url, **options), asked)
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


async def test_text_comes_piece_by_piece_and_its_cost_at_the_end() -> None:
    chunks, asked = await answered(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo \U0001f44b"}),
        chunk({}, finish_reason="stop"),
        usage_chunk(10, 5),
        DONE,
        temperature=0.5,
        max_tokens=77,
    )

    assert text_of(chunks) == "Hello \U0001f44b"
    usage = [one.usage for one in chunks if isinstance(one, UsageChunk)][-1]
    assert (usage.input_tokens, usage.output_tokens) == (10, 5)
    assert (usage.cache_read_tokens, usage.thinking_tokens) == (4, 2)
    assert end_of(chunks) is StopKind.STOP
    # Nobody would know what a run costs without it.
    assert asked["stream_options"] == {"include_usage": True}
    assert asked["messages"][0] == {"role": "system", "content": "Be kind."}
    assert (asked["temperature"], asked["max_completion_tokens"]) == (0.5, 77)


async def test_calls_side_by_side_keep_their_pieces_apart() -> None:
    chunks, asked = await answered(
        call_piece(0, "", "call_a", "one"),
        call_piece(0, '{"n"'),
        call_piece(1, "", "call_b", "two"),
        call_piece(1, "{}"),
        call_piece(0, ": 9007199254740993}"),
        chunk({}, finish_reason="tool_calls"),
        DONE,
        tools=["one", "two"],
    )

    assert list(calls_of(chunks).values()) == [
        ("call_a", "one", '{"n": 9007199254740993}'),
        ("call_b", "two", "{}"),
    ]
    assert [one["function"]["name"] for one in asked["tools"]] == ["one", "two"]


async def test_calls_and_results_go_back_under_the_providers_ids() -> None:
    async with provider_server(
        Answer((chunk({"content": "ok"}, finish_reason="stop"), DONE))
    ) as server:
        before = assistant(call("c1", "look", {"a": 1}, provider_call_id="call_a"))
        asked = request(
            user("hello"), before, results(result("c1", "found", "look")), tools=["look"]
        )
        await answer(model_at(server.url), asked)

    sent = server.asked[0]["messages"]
    assert sent[1]["tool_calls"][0]["id"] == "call_a"
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("call_a", "found")


async def test_reasoning_that_a_compatible_server_shows_is_not_taken_for_the_answer() -> None:
    chunks, asked = await answered(
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Yes."}, finish_reason="stop"),
        DONE,
        reasoning_effort="low",
    )

    assert text_of(chunks) == "Yes."
    assert thinking_of(chunks) in {"", "hm"}
    assert asked["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("length", StopKind.LENGTH), ("content_filter", StopKind.CONTENT_FILTER)],
)
async def test_an_answer_that_ends_early_says_why(reason: str, stop: StopKind) -> None:
    chunks, _ = await answered(chunk({"content": "Half"}), chunk({}, finish_reason=reason), DONE)

    assert end_of(chunks) is stop


@pytest.mark.parametrize(
    ("status", "reason", "retryable"),
    [
        (401, "MODEL_AUTHENTICATION", False),
        (404, "MODEL_REQUEST_INVALID", False),
        (429, "MODEL_RATE_LIMITED", True),
        (500, "MODEL_UNAVAILABLE", True),
        (503, "MODEL_OVERLOADED", True),
    ],
)
async def test_refusals_are_told_apart(status: int, reason: str, *, retryable: bool) -> None:
    body = {"error": {"message": "secret", "type": "t", "code": "c"}}
    _, error = await failed(failure(status, body, retry_after="7"))

    assert (error.reason, error.retryable) == (reason, retryable)
    assert error.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"type": "server_error", "message": "secret"}, "MODEL_UNAVAILABLE"),
        ({"code": "rate_limit_exceeded", "message": "secret"}, "MODEL_RATE_LIMITED"),
    ],
)
async def test_a_failure_in_mid_answer_keeps_what_came_before(
    told: dict[str, str], reason: str
) -> None:
    chunks, error = await failed(Answer((chunk({"content": "Half"}), chunk(error=told))))

    assert text_of(chunks) == "Half"
    assert (error.reason, error.retryable) == (reason, True)


@pytest.mark.parametrize("end", [(CUT,), (), (DONE,)], ids=["reset", "closed", "done too soon"])
async def test_a_stream_that_is_cut_keeps_what_came_before(end: tuple[bytes, ...]) -> None:
    chunks, error = await failed(Answer((chunk({"content": "Half"}), *end)))

    assert text_of(chunks) == "Half"
    assert error.retryable
    assert error.reason in {"MODEL_STREAM_CUT", "MODEL_UNAVAILABLE"}


async def test_a_provider_that_is_not_there_is_unavailable() -> None:
    _, error = await failing_answer(model_at("http://127.0.0.1:9"), request())

    assert (error.reason, error.retryable) == ("MODEL_UNAVAILABLE", True)


def test_an_option_of_the_other_provider_is_refused() -> None:
    with pytest.raises(ModelSpecError, match="thinking_tokens is for anthropic"):
        model_at("http://127.0.0.1:9", thinking_tokens=2000)
