from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagentry.server.agent.model_view import (
    CONTINUATION,
    MALFORMED_ARGUMENTS,
    NO_OUTPUT,
    NO_RESULT,
    OPENING,
    ModelView,
    model_view,
)
from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    Message,
    MessageStatus,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.model.history import history_problem
from tests.support.conversation import assistant, call, message, result, results, user

SIGNED = ThinkingPart("hm", b"signature")


def shape(view: tuple[Message, ...]) -> list[tuple[str, list[str]]]:
    return [(m.role.value, [type(part).__name__ for part in m.parts]) for m in view]


def test_a_user_who_writes_twice_before_an_answer_is_heard_with_both_messages() -> None:
    view = model_view([user("one"), user("two")])
    assert [m.role for m in view] == [Role.USER]
    assert view[0].parts == (TextPart("one"), TextPart("two"))


def test_a_cancelled_sentence_stays_in_what_the_model_remembers() -> None:
    cut = assistant("The answer is", status=MessageStatus.CANCELLED)
    view = model_view([user("q"), cut, user("go on")])
    assert view[1] is cut


def test_signed_thinking_is_given_back_and_unsigned_thinking_is_not() -> None:
    view = model_view([user("q"), assistant(SIGNED, "a", ThinkingPart("unsigned"), "b"), user("r")])
    assert view[1].parts == (SIGNED, TextPart("a"), TextPart("b"))


def test_a_call_that_was_cut_in_the_middle_of_its_arguments_is_left_out() -> None:
    half = call("c2", text='{"city": "Ber', status=ToolCallStatus.INCOMPLETE)
    cut = assistant("Looking.", half, status=MessageStatus.STREAM_ERROR)
    assert shape(model_view([user("q"), cut, user("r")])) == [
        ("user", ["TextPart"]),
        ("assistant", ["TextPart"]),
        ("user", ["TextPart"]),
    ]


def test_thinking_that_led_to_nothing_does_not_make_the_provider_refuse_the_next_message() -> None:
    view = model_view([user("q"), assistant(SIGNED, status=MessageStatus.CANCELLED), user("r")])
    assert view[0].parts == (TextPart("q"), TextPart("r"))


def test_a_call_without_a_result_is_shown_with_an_unknown_outcome_so_that_it_is_not_repeated() -> (
    None
):
    view = model_view([user("q"), assistant(call("c1"), call("c2")), results(result("c2"))])
    first, second = view[2].tool_results()
    assert (first.call_id, first.text(), first.is_error) == ("c1", NO_RESULT, True)
    assert second == result("c2")


def test_results_follow_their_calls_in_call_order_whatever_order_they_came_in() -> None:
    view = model_view(
        [user("q"), assistant(call("a"), call("b")), results(result("b"), result("a"))]
    )
    assert [r.call_id for r in view[2].tool_results()] == ["a", "b"]


def test_a_result_that_came_after_the_next_message_is_shown_behind_its_call() -> None:
    view = model_view([user("q"), assistant(call("a")), user("r"), results(result("a", "late"))])
    assert shape(view) == [
        ("user", ["TextPart"]),
        ("assistant", ["ToolCall"]),
        ("tool", ["ToolResult"]),
        ("user", ["TextPart"]),
    ]
    assert view[2].tool_results()[0].text() == "late"


def test_the_later_of_two_results_counts() -> None:
    view = model_view(
        [user("q"), assistant(call("a")), results(result("a", "1"), result("a", "2"))]
    )
    assert [r.text() for r in view[2].tool_results()] == ["2"]


def test_a_result_without_its_call_is_left_out() -> None:
    assert len(model_view([user("q"), results(result("gone"))])) == 1


def test_arguments_that_are_not_json_are_shown_to_the_model_as_what_it_wrote() -> None:
    view = model_view([user("q"), assistant(call("a", text='{"x": 1')), results(result("a"))])
    shown = view[1].tool_calls()[0].arguments_json
    assert json.loads(shown) == {MALFORMED_ARGUMENTS: '{"x": 1'}


def test_exact_arguments_stay_verbatim() -> None:
    text = '{"n":9007199254740993,  "e":"\\ud83d\\u0000"}'
    view = model_view([user("q"), assistant(call("a", text=text)), results(result("a"))])
    assert view[1].tool_calls()[0].arguments_json == text


def test_a_call_without_arguments_has_an_empty_object() -> None:
    view = model_view([user("q"), assistant(call("a", text="")), results(result("a"))])
    assert view[1].tool_calls()[0].arguments_json == "{}"


def test_an_empty_result_gets_words() -> None:
    view = model_view([user("q"), assistant(call("a")), results(result("a", " \n"))])
    assert view[2].tool_results()[0].text() == NO_OUTPUT


def test_a_message_of_spaces_is_dropped_and_its_neighbours_still_alternate() -> None:
    view = model_view([user("q"), assistant("a"), user(" \n\t")])
    assert [m.text() for m in view] == ["q", "a", CONTINUATION]


def test_a_run_without_a_new_message_and_one_on_an_empty_conversation_are_possible() -> None:
    assert model_view([user("q"), assistant("a")])[-1].text() == CONTINUATION
    assert [m.text() for m in model_view([])] == [OPENING]
    assert [m.text() for m in model_view([assistant("a"), user("q")])] == [OPENING, "a", "q"]


def test_answers_of_two_runs_without_a_message_between_them_are_one() -> None:
    view = model_view([user("q"), assistant("a"), assistant("b", call("c")), results(result("c"))])
    assert shape(view)[1] == ("assistant", ["TextPart", "TextPart", "ToolCall"])


def test_a_system_message_in_the_conversation_is_not_lost() -> None:
    view = model_view([message(Role.SYSTEM, "be kind"), user("q")])
    assert view[0].parts == (TextPart("be kind"), TextPart("q"))


def test_messages_that_need_no_change_are_the_very_same_objects() -> None:
    messages = [user("q"), assistant("a"), user("r")]
    assert all(a is b for a, b in zip(model_view(messages), messages, strict=True))


def test_a_long_conversation_does_not_parse_its_old_arguments_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = [user("q")]
    for number in range(50):
        messages += [
            assistant(call(f"c{number}", arguments={"n": number})),
            results(result(f"c{number}")),
        ]
    view = ModelView()
    first = view.build(messages)
    parsed: list[str] = []
    real = json.loads

    def loads(text: str) -> object:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(json, "loads", loads)
    messages += [assistant(call("new", arguments={"n": "new"})), results(result("new"))]
    second = view.build(messages)
    assert parsed == ['{"n": "new"}']
    assert second[:-2] == first


def test_a_message_that_is_replaced_in_the_state_is_seen_anew() -> None:
    grown = assistant("a")
    view = ModelView()
    view.build([user("q"), grown])
    assert view.build([user("q"), replace(grown, parts=(TextPart("ab"),))])[1].text() == "ab"


# Whatever state a run loop can leave behind, the view of it is valid.

texts = st.sampled_from(["", " ", "\n", "hello", "\x00", "שלום", "👋🏽", "\u200b"])
media = st.builds(
    MediaPart,
    st.sampled_from(MediaKind),
    st.just("image/png"),
    url=st.sampled_from([None, "", "https://example.invalid/x.png"]),
    data=st.sampled_from([None, b"", b"png"]),
)
opaque = st.builds(
    OpaquePart, st.builds(Document, st.just("x/y"), st.sampled_from([None, "", "{}"]))
)
user_parts: st.SearchStrategy[list[Part]] = st.lists(
    st.one_of(st.builds(TextPart, texts), media, opaque), max_size=3
)
arguments = st.sampled_from(["{}", "", " ", '{"a": 1}', '{"a', "[1]", "null", "NaN", "[" * 5000])
thinking = st.builds(ThinkingPart, texts, st.sampled_from([b"", b"sig"]))


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Draws what the run loop does: messages, turns that end anywhere, calls with some results."""
    messages: list[Message] = []
    numbers = iter(range(10_000))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages.append(
                message(draw(st.sampled_from([Role.USER, Role.SYSTEM])), *draw(user_parts))
            )
        for _ in range(draw(st.integers(0, 3))):
            parts: list[Part] = []
            for kind in draw(st.lists(st.sampled_from("tTcco"), max_size=5)):
                if kind == "t":
                    parts.append(TextPart(draw(texts)))
                elif kind == "T":
                    parts.append(draw(thinking))
                elif kind == "o":
                    parts.append(draw(opaque))
                else:
                    status = draw(st.sampled_from(ToolCallStatus))
                    name = draw(st.sampled_from(["look_up", "do", ""]))
                    parts.append(
                        call(f"call-{next(numbers)}", name, text=draw(arguments), status=status)
                    )
            messages.append(assistant(*parts, status=draw(st.sampled_from(MessageStatus))))
            calls = [part for part in parts if isinstance(part, ToolCall)]
            calls = draw(st.permutations(calls))
            for chosen in draw(st.lists(st.sampled_from(calls), max_size=3)) if calls else []:
                inner = tuple(TextPart(text) for text in draw(st.lists(texts, max_size=2)))
                done = ToolResult(chosen.call_id, draw(st.sampled_from([chosen.name, "x"])), inner)
                messages.append(results(done))
    if draw(st.booleans()) and len(messages) > 1:
        index = draw(st.integers(0, len(messages) - 2))
        messages[index], messages[index + 1] = messages[index + 1], messages[index]
    return messages


@settings(max_examples=300)
@given(conversations())
def test_no_conversation_is_stuck_because_the_provider_refuses_its_history(
    messages: list[Message],
) -> None:
    view = model_view(messages)
    assert history_problem(view) is None
    assert model_view(view) == view or view[-1].text() in {CONTINUATION, OPENING}


@settings(max_examples=150)
@given(conversations())
def test_nothing_that_a_provider_takes_is_lost(messages: list[Message]) -> None:
    def visible(source: list[Message] | tuple[Message, ...]) -> list[str]:
        return [
            part.text
            for m in source
            if m.role is not Role.TOOL
            for part in m.parts
            if isinstance(part, TextPart)
            and part.text.strip()
            and part.text not in {CONTINUATION, OPENING}
        ]

    view = model_view(messages)
    assert visible(view) == visible(messages)
    shown = [c.call_id for m in view for c in m.tool_calls()]
    assert shown == [
        c.call_id
        for m in messages
        for c in m.tool_calls()
        if c.status is ToolCallStatus.COMPLETE and c.name
    ]


@settings(max_examples=100)
@given(conversations())
def test_a_view_that_grows_message_by_message_is_the_view_made_at_once(
    messages: list[Message],
) -> None:
    growing = ModelView()
    for end in range(len(messages) + 1):
        assert growing.build(messages[:end]) == model_view(messages[:end])
