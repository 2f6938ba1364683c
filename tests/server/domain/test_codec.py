"""The JSON form of the domain: nothing is lost, and what cannot be read says where and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings

from sagentry.server.domain.codec import UnreadableError, from_json, to_json
from sagentry.server.domain.display import OpaqueContent
from sagentry.server.domain.messages import Document, Message, Role, TextPart, ToolCall
from sagentry.server.domain.runs import Run
from sagentry.server.domain.state import AgentState, Patch, TextGrown
from sagentry.server.domain.writes import RowsSaved, SaveMessage
from sagentry.server.ports import WriteRequest
from tests.support import strategies
from tests.support.full_state import full_state

GOLDEN = Path(__file__).parents[2] / "golden" / "state_v1.json"
TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MESSAGE = (
    '{"message_id":"m","role":"user","parts":[%s],"create_time":"2026-01-02T03:04:05.678901+00:00"}'
)


@given(strategies.states)
def test_any_state_is_read_as_it_was_written(state: AgentState) -> None:
    read = from_json(to_json(state, AgentState), AgentState)

    assert read == state
    # Oldest first: equal dictionaries may differ in it.
    assert list(read.answers) == list(state.answers)
    assert list(read.runs) == list(state.runs)


@given(strategies.patches)
def test_any_patch_is_read_as_it_was_written(patch: Patch) -> None:
    text = to_json(patch, Patch)

    assert from_json(text, Patch) == patch
    assert from_json(text.encode(), Patch) == patch
    assert text.isascii()


@given(strategies.write_requests)
def test_any_write_is_read_as_it_was_written(request: WriteRequest) -> None:
    assert from_json(to_json(request, WriteRequest), WriteRequest) == request


@given(strategies.states)
@settings(max_examples=20)
def test_the_same_state_is_always_the_same_text(state: AgentState) -> None:
    """Sets have no order of their own; texts that differ would look like changes."""
    again = from_json(to_json(state, AgentState), AgentState)

    assert to_json(again, AgentState) == to_json(state, AgentState)


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a\x00b",
        "\ud83d",
        "x\udc00",
        "😀",
        "שלום",
        "e\u0301",
        "\u2028",
        '"\\',
        "x" * 1_000_000,
    ],
)
def test_every_character_is_kept(text: str) -> None:
    change = TextGrown("m", 0, text)

    assert from_json(to_json(Patch(1, (change,)), Patch), Patch).changes == (change,)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**64, 10**100])
def test_integers_are_exact(number: int) -> None:
    assert from_json(to_json(Patch(number, ()), Patch), Patch).revision == number


def test_documents_are_kept_to_the_letter() -> None:
    """Arguments of 60 levels, spaces, and numbers of any length are text to us."""
    for verbatim in (
        '{"a":' * 5000 + "1" + "}" * 5000,
        ' {"b" : 1e999, "b": 12345678901234567890.10} ',
    ):
        call = ToolCall("c", "t", verbatim)
        message = Message("m", Role.ASSISTANT, (call,), TIME, metadata=Document("j", json=verbatim))

        assert from_json(to_json(message, Message), Message) == message


def test_times_are_written_in_utc_and_read_as_the_same_moment() -> None:
    there = TIME.astimezone(timezone(timedelta(hours=5, minutes=45)))
    text = to_json(Run("r", there), Run)

    assert json.loads(text)["start_time"] == "2026-01-02T03:04:05.678901+00:00"
    assert from_json(text, Run).start_time == TIME
    foreign = '{"run_id":"r","start_time":"2026-01-02T08:49:05.678901+05:45"}'
    assert from_json(foreign, Run).start_time.isoformat() == TIME.isoformat()


def test_unknown_keys_are_ignored_at_every_level() -> None:
    """A newer server's additional fields do not stop an older one."""
    part = '{"$":"TextPart","text":"hi","of_the_future":{"a":[{"$":"Nothing"}]}}'
    read = from_json((MESSAGE % part)[:-1] + ',"of_the_future":[1]}', Message)

    assert read == Message("m", Role.USER, (TextPart("hi"),), TIME)


def test_fields_at_their_default_are_left_out() -> None:
    assert to_json(AgentState(), AgentState) == "{}"
    assert from_json("{}", AgentState) == AgentState()


def test_defaults_are_not_shared_between_states() -> None:
    first, second = from_json("{}", AgentState), from_json("{}", AgentState)
    first.growing.add("m")

    assert second.growing == set()
    assert to_json(second, AgentState) == "{}"


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ('{"$":"PartOfTheFuture"}', r"\.parts\[0\]: unknown kind 'PartOfTheFuture'"),
        ('{"$":"Message"}', r"\.parts\[0\]: unknown kind 'Message'"),
        ('{"text":"no kind"}', r"\.parts\[0\]: unknown kind None"),
        ('{"$":["TextPart"],"text":"x"}', r"\.parts\[0\]: unknown kind \['TextPart'\]"),
        ('{"$":{},"text":"x"}', r"\.parts\[0\]: unknown kind \{\}"),
        ('"text"', r"\.parts\[0\]: expected dict, found str"),
        ('{"$":"TextPart"}', r"\.parts\[0\]: .*'text'"),
        ('{"$":"TextPart","text":1}', r"\.parts\[0\]\.text: expected str, found int"),
        ('{"$":"ThinkingPart","text":"x","signature":"é"}', r"\.signature: .*ASCII"),
        ('{"$":"ThinkingPart","text":"x","signature":"QQ"}', r"\.signature: .*padding"),
        (
            '{"$":"ToolCall","call_id":"c","name":"n","arguments_json":"","status":[]}',
            r"\.status: ",
        ),
    ],
)
def test_a_part_that_cannot_be_read_is_named(part: str, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem):
        from_json(MESSAGE % part, Message)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "expected dict, found list"),
        ("null", "expected dict, found NoneType"),
        ('{"revision":true}', r"\.revision: expected int, found bool"),
        ('{"revision":1.0}', r"\.revision: expected int, found float"),
        ('{"revision":NaN}', r"\.revision: expected int, found float"),
        ('{"revision":%s}' % ("9" * 5000), "not JSON"),
        ('{"revision":null}', r"\.revision: expected int, found NoneType"),
        ('{"growing":{"a":1}}', r"\.growing: expected list, found dict"),
        ('{"growing":["a",1]}', r"\.growing\[1\]: expected str, found int"),
        ('{"growing":[["a"]]}', r"\.growing\[0\]: expected str, found list"),
        ('{"answers":[]}', r"\.answers: expected dict, found list"),
        ('{"runs":{"r":{}}}', r"\.runs\.r: .*run_id"),
        ('{"status":"of_the_future"}', r"\.status: 'of_the_future'"),
        ('{"runs":{"r":{"run_id":"r","start_time":"soon"}}}', r"\.runs\.r\.start_time: "),
        ('{"runs":{"r":{"run_id":"r","start_time":"2026-01-02T03:04:05"}}}', "without a zone"),
        ('{"runs":{"r":{"run_id":"r","start_time":"0001-01-01T00:00+23:00"}}}', "start_time: "),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem):
        from_json(text, AgentState)


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"messages":[', '{"error":'])
@pytest.mark.parametrize("depth", [500, 5_000, 200_000])
def test_deep_nesting_is_unreadable_and_no_fault(opening: str, depth: int) -> None:
    closing = "".join({"[": "]", "{": "}"}[one] for one in reversed(opening) if one in "[{")
    text = opening * depth + "1" + closing * depth
    if opening == '{"a":' and depth == 500:
        assert from_json(text, AgentState) == AgentState()
        return
    with pytest.raises(UnreadableError):
        from_json(text, AgentState)


def test_bytes_that_are_no_text_are_unreadable() -> None:
    with pytest.raises(UnreadableError, match="not JSON"):
        from_json(b'{"title":"\xff"}', AgentState)


def test_rows_that_are_opaque_to_us_are_kept_byte_for_byte() -> None:
    content = OpaqueContent(bytes(range(256)))

    assert from_json(to_json(content, OpaqueContent), OpaqueContent) == content
    assert from_json(to_json(RowsSaved(()), RowsSaved), RowsSaved) == RowsSaved(())
    assert from_json('{"message":%s,"items":[]}' % (MESSAGE % ""), SaveMessage).items == ()


def test_a_state_of_version_1_is_read_for_ever() -> None:
    """The file is never renewed: conversations that were stored like this must be woken."""
    assert from_json(GOLDEN.read_text(encoding="ascii"), AgentState) == full_state()


def test_a_state_of_version_1_is_still_written_like_this() -> None:
    """Older servers read what we write; another form needs another version."""
    assert json.loads(to_json(full_state(), AgentState)) == json.loads(
        GOLDEN.read_text(encoding="ascii")
    )
