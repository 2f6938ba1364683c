from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    ToolResult,
)
from sagentry.server.domain.models import (
    ModelCallError,
    ModelChunk,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
)
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.from_langchain import ChunkTranslator
from sagentry.server.model.to_langchain import opaque_media_type, to_langchain
from tests.support.conversation import (
    answer,
    assistant,
    call,
    calls_of,
    request,
    result,
    results,
    text_of,
    thinking_of,
    user,
)
from tests.support.provider import END, block, model_of, piece, provider, text

pytestmark = pytest.mark.anyio


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

strange = st.text(
    st.one_of(st.sampled_from("aé😀\u200f\u0301\x00"), st.characters(codec="utf-8")), max_size=30
)


def split(source: str, cuts: list[int]) -> list[str]:
    """Cuts text between UTF-16 units, as a provider does that thinks in them."""
    units = source.encode("utf-16-le", "surrogatepass")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    places = sorted({cut % (len(halves) + 1) for cut in cuts})
    bounds = [0, *places, len(halves)]
    return ["".join(halves[a:b]) for a, b in itertools.pairwise(bounds)]


@settings(max_examples=200)
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


@settings(max_examples=100)
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
