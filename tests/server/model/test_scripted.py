from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from sagentry.server.domain.messages import TokenUsage
from sagentry.server.domain.models import (
    EndChunk,
    SignatureChunk,
    StopKind,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.factory import build_model
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
    user,
)

pytestmark = pytest.mark.anyio

Make = Callable[..., LangChainModel]


@pytest.fixture
def scripted(tmp_path: Path) -> Make:
    def make(answers: str, top: str = "") -> LangChainModel:
        (tmp_path / "s.yaml").write_text(f"version: 1\n{top}\nanswers:\n{answers}")
        model = build_model("script:s.yaml", base_dir=tmp_path)
        assert isinstance(model, LangChainModel)
        return model

    return make


async def test_every_kind_of_content_comes_as_it_is_written(
    scripted: Make,
) -> None:
    model = scripted(r"""
- steps:
  - thinking: [a, b]
  - signature: sïg
  - text: [c, "\ud83d", "\ude00"]
  - tool_call: {name: f, arguments: ['{"n":', ' 9007199254740993}']}
  - tool_call: {name: g, arguments: {x: [1]}}
  - tool_call: {name: h}
  - usage: {input_tokens: 3, output_tokens: 2, cache_read_tokens: 1, thinking_tokens: 0}
  - usage: {output_tokens: 4}
  - end: length
""")
    chunks = await answer(model, request())
    assert chunks[:5] == [
        ThinkingChunk("a"),
        ThinkingChunk("b"),
        SignatureChunk("sïg".encode()),
        TextChunk("c"),
        TextChunk("😀"),
    ]
    assert calls_of(chunks) == {
        0: ("script_1", "f", '{"n": 9007199254740993}'),
        1: ("script_2", "g", '{"x": [1]}'),
        2: ("script_3", "h", "{}"),
    }
    assert chunks[-3:] == [
        UsageChunk(TokenUsage(3, 2, 1, None, 0)),
        UsageChunk(TokenUsage(3, 4, 1, None, 0)),
        EndChunk(StopKind.LENGTH),
    ]


async def test_thoughts_between_texts_keep_their_own_signatures(
    scripted: Make,
) -> None:
    model = scripted(
        "- steps: [{thinking: a}, {signature: s1}, {text: b}, {thinking: c}, {signature: s2}, {text: d}]"
    )
    chunks = await answer(model, request())
    assert signatures_of(chunks) == [b"s1", b"s2"]


async def test_answers_are_given_in_order_and_then_the_lack_is_told(
    scripted: Make,
) -> None:
    model = scripted("- steps: [{text: one}]\n- steps: [{text: two}]")
    first = user("secret " * 40)
    assert text_of(await answer(model, request(first))) == "one"
    asked = request(first, assistant("one"), user("b"), tools=["f"])
    assert text_of(await answer(model, asked)) == "two"
    _, error = await failing_answer(
        model, request(first, assistant("one"), user("b"), tools=["f"], call_number=3)
    )
    assert (error.reason, error.retryable) == ("SCRIPT_UNMATCHED", False)
    for words in (
        "s.yaml",
        "call 3",
        "1 messages",
        "'b'",
        "tools f",
        "answers[0] would fit but was",
    ):
        assert words in error.message


async def test_agents_that_share_a_model_do_not_take_each_others_answers(
    scripted: Make,
) -> None:
    model = scripted("- steps: [{text: one}]\n- steps: [{text: two}]")
    conversations = [user("hi") for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answer(model, request(first))) for first in conversations]
    assert {text_of(task.result()) for task in tasks} == {"one"}


async def test_a_retry_gets_the_answer_behind_the_failure(
    scripted: Make,
) -> None:
    model = scripted(
        "- steps: [{text: a}, {error: {type: overloaded, after: 2}}]\n- steps: [{text: b}]"
    )
    first = user("hi")
    chunks, error = await failing_answer(model, request(first))
    assert text_of(chunks) == "a"
    assert (error.reason, error.retryable) == ("MODEL_OVERLOADED", True)
    assert error.retry_after == timedelta(seconds=2)
    assert text_of(await answer(model, request(first))) == "b"


async def test_after_a_restart_the_script_goes_on_where_the_conversation_is(
    scripted: Make,
) -> None:
    answers = """
- steps: [{error: {type: overloaded}}]
- steps: [{text: one}, {tool_call: {name: f}}]
- when: {call_number: 2}
  steps: [{text: two}]
- steps: [{text: three}]
"""
    history = [
        user("a"),
        assistant("one", call("c")),
        results(result("c")),
        assistant("two"),
        user("b"),
    ]
    restarted = scripted(answers)
    _, error = await failing_answer(restarted, request(*history))
    assert error.reason == "MODEL_OVERLOADED"
    assert text_of(await answer(restarted, request(*history))) == "three"


async def test_conditions_choose_the_answer(scripted: Make) -> None:
    model = scripted("""
- when: {last_user_text: hello}
  repeat: true
  steps: [{text: exact}]
- when: {last_user_text: {regex: "(?i)WEATHER"}, call_number: 1, tools_offered: [weather]}
  repeat: true
  steps: [{text: call}]
- when: {tools_offered: []}
  repeat: true
  steps: [{text: no tools}]
- repeat: true
  steps: [{text: other}]
""")
    assert text_of(await answer(model, request(user("hello")))) == "exact"
    assert text_of(await answer(model, request(user("before", "hello")))) == "exact"
    assert text_of(await answer(model, request(user("hello "), tools=["f"]))) == "other"
    asked = request(user("The weather?"), tools=["f", "weather"])
    assert text_of(await answer(model, asked)) == "call"
    assert text_of(await answer(model, asked)) == "call"
    asked = request(user("The weather?"), tools=["weather"], call_number=2)
    assert text_of(await answer(model, asked)) == "other"
    assert text_of(await answer(model, request(user("The weather?")))) == "no tools"


@pytest.mark.parametrize(
    ("kind", "reason", "retryable"),
    [
        ("{type: rate_limited}", "MODEL_RATE_LIMITED", True),
        ("{type: unavailable}", "MODEL_UNAVAILABLE", True),
        ("{type: authentication}", "MODEL_AUTHENTICATION", False),
        ("{type: request_invalid}", "MODEL_REQUEST_INVALID", False),
        ("{}", "MODEL_FAILED", False),
        ("{retryable: true}", "MODEL_FAILED", True),
    ],
)
async def test_failures_are_those_of_a_provider(
    scripted: Make, kind: str, reason: str, *, retryable: bool
) -> None:
    _, error = await failing_answer(scripted(f"- steps: [{{error: {kind}}}]"), request())
    assert (error.reason, error.retryable) == (reason, retryable)


async def test_a_cut_stream_keeps_what_came(scripted: Make) -> None:
    chunks, error = await failing_answer(
        scripted("- steps: [{text: half}, {cut: true}]"), request()
    )
    assert (text_of(chunks), error.reason) == ("half", "MODEL_STREAM_CUT")


async def test_a_model_that_hangs_can_be_left(scripted: Make) -> None:
    model = scripted("- steps: [{text: a}, {hang: true}]")
    async with aclosing(model.stream(request())) as stream:
        assert await anext(stream) == TextChunk("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(stream)


async def test_a_test_outside_the_process_can_hold_the_model(
    scripted: Make, tmp_path: Path
) -> None:
    model = scripted("- steps: [{text: a}, {sleep: 0}, {wait_for: go}, {text: b}]")
    stream = model.stream(request())
    assert await anext(stream) == TextChunk("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stream.asend(None))
        await asyncio.sleep(0)
        assert not task.done()
        (tmp_path / "go").touch()
    assert task.result() == TextChunk("b")


async def test_names_are_replaced_only_where_that_is_asked_for(
    scripted: Make,
) -> None:
    model = scripted("""
- when: {last_user_text: {regex: 'say (?P<what>.*)'}, call_number: 1}
  expand: true
  steps:
  - text: ["${what}", " ${unknown}"]
  - tool_call: {name: f, arguments: '{"a": "${what}"}'}
- when: {call_number: 2}
  expand: true
  steps: [{text: "${tool_result} of ${last_user_text}"}]
- steps: [{text: "${last_user_text}"}]
""")
    first = user('say "hi"')
    chunks = await answer(model, request(first))
    assert text_of(chunks) == '"hi" ${unknown}'
    assert calls_of(chunks)[0][2] == '{"a": "\\"hi\\""}'
    history = (first, assistant(call("c")), results(result("c", "ok")))
    assert text_of(await answer(model, request(*history, call_number=2))) == 'ok of say "hi"'
    assert text_of(await answer(model, request(user("x")))) == "${last_user_text}"


async def test_a_broken_history_is_refused_unless_the_script_says_otherwise(
    scripted: Make,
) -> None:
    broken = request(user("a"), user("b"))
    _, error = await failing_answer(scripted("- steps: []"), broken)
    assert error.reason == "HISTORY_INVALID"
    model = scripted("- steps: []", "strict_history: false")
    assert await answer(model, broken) == [EndChunk(StopKind.STOP)]


@pytest.mark.parametrize(
    ("said", "tool", "arguments"),
    [
        ("What time is it?", "current_time", "{}"),
        ("What is 17 * 23?", "calculate", '{"expression": "17 * 23"}'),
        ("and (2+3)*4 - 1, please", "calculate", '{"expression": "(2+3)*4 - 1"}'),
        ("hello", None, None),
        ("In 2024 I moved.", None, None),
    ],
)
async def test_the_demo_answers_and_uses_its_tools(
    said: str, tool: str | None, arguments: str
) -> None:
    model = build_model("script:demo", base_dir=Path())
    tools = ["current_time", "calculate"]
    first = user(said)
    chunks = await answer(model, request(first, tools=tools))
    assert len([chunk for chunk in chunks if isinstance(chunk, TextChunk)]) > 1
    if tool is None:
        assert calls_of(chunks) == {}
        return
    _, name, written = calls_of(chunks)[0]
    assert (name, written.replace(' "}', '"}')) == (tool, arguments)
    history = (first, assistant(call("c", tool)), results(result("c", "42", tool)))
    assert "42" in text_of(await answer(model, request(*history, tools=tools, call_number=2)))
