"""The state is the fold of its changes, however they are recorded, joined and stored on the way."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagentry.server.domain import state as state_module
from sagentry.server.domain.codec import from_json, to_json
from sagentry.server.domain.messages import Message, Part, Role, TextPart, ToolCall, ToolResult
from sagentry.server.domain.runs import Run, RunEnd
from sagentry.server.domain.state import (
    AgentState,
    AnswerRecorded,
    CallStarted,
    Change,
    HeldDelivered,
    MessageBegun,
    MessageFinished,
    MessageHeld,
    PartOpened,
    Patch,
    RecordedAnswer,
    RunRecorded,
    TextGrown,
    merge_patches,
)
from tests.support import strategies

TIME = datetime(2026, 1, 2, tzinfo=UTC)

# So few names that changes meet.
FEW_IDS = st.sampled_from(["a", "b", "c", "d"])
CALLS = st.sampled_from(["call-1", "call-2"])
RUN_IDS = st.sampled_from([f"run-{n}" for n in range(6)])
SMALL_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, st.just("t")),
    st.builds(ToolCall, CALLS, st.just("tool"), st.just("{")),
    st.builds(ToolResult, CALLS, st.just("tool"), st.just(())),
)
SMALL_MESSAGES = st.builds(
    Message,
    FEW_IDS,
    st.sampled_from([Role.ASSISTANT, Role.TOOL]),
    st.lists(SMALL_PARTS, max_size=3).map(tuple),
    st.just(TIME),
)
SMALL_CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(MessageHeld, SMALL_MESSAGES),
    st.just(HeldDelivered()),
    st.builds(MessageBegun, SMALL_MESSAGES),
    st.builds(PartOpened, FEW_IDS, SMALL_PARTS),
    st.builds(TextGrown, FEW_IDS, st.integers(0, 2), st.just("+")),
    st.builds(MessageFinished, SMALL_MESSAGES),
    st.builds(CallStarted, CALLS),
    st.builds(
        AnswerRecorded,
        st.builds(RecordedAnswer, RUN_IDS, st.just("f"), st.dictionaries(FEW_IDS, FEW_IDS)),
    ),
    st.builds(
        RunRecorded,
        st.builds(
            Run,
            RUN_IDS,
            st.just(TIME),
            turns=st.integers(0, 3),
            end=st.sampled_from([None, *RunEnd]),
        ),
    ),
    strategies.status_changes,
)


@pytest.fixture(scope="module", autouse=True)
def short_memory() -> Iterator[None]:
    """Makes the state forget runs and answers after a few, so that forgetting is tested, too."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(state_module, "REMEMBERED_RUNS", 3)
        patching.setattr(state_module, "REMEMBERED_ANSWERS", 3)
        yield


def is_known(state: AgentState, message: Message) -> bool:
    return any(one.message_id == message.message_id for one in [*state.messages, *state.held])


@st.composite
def fitting_patches(draw: st.DrawFn) -> list[Patch]:
    """Patches that fit one after the other: any changes, without those that the state refuses.

    An id stands for one message only: the server makes it, of random bits or of a request's id.
    """
    state = AgentState()
    patches: list[Patch] = []
    for _ in range(draw(st.integers(0, 8))):
        fitting: list[Change] = []
        for change in draw(st.lists(SMALL_CHANGES, max_size=6)):
            if isinstance(change, MessageHeld | MessageBegun) and is_known(state, change.message):
                continue
            trial = copy.deepcopy(state)
            try:
                trial.apply(Patch(state.revision + 1, (change,)))
            except ValueError:
                continue
            fitting.append(change)
            state = trial
            state.revision -= 1
        revision = state.revision + draw(st.integers(1, 3))
        patches.append(Patch(revision, tuple(fitting)))
        state.revision = revision
    return patches


def fold(patches: list[Patch]) -> AgentState:
    state = AgentState()
    for patch in patches:
        state.apply(patch)
    return state


def split(patches: list[Patch], cuts: list[int]) -> list[list[Patch]]:
    edges = [0, *sorted(cut % (len(patches) + 1) for cut in cuts), len(patches)]
    return [patches[begin:end] for begin, end in itertools.pairwise(edges)]


def assert_same(one: AgentState, other: AgentState) -> None:
    assert one == other
    assert list(one.runs) == list(other.runs)
    assert list(one.answers) == list(other.answers)


@given(fitting_patches(), st.lists(st.integers(0, 100), max_size=4))
def test_joined_patches_have_the_effect_of_the_single_ones(
    patches: list[Patch], cuts: list[int]
) -> None:
    joined = [merge_patches(some) for some in split(patches, cuts)]

    assert_same(fold([patch for patch in joined if patch is not None]), fold(patches))


@given(fitting_patches(), st.lists(st.integers(0, 100), max_size=4))
def test_joining_what_is_joined_already_changes_nothing(
    patches: list[Patch], cuts: list[int]
) -> None:
    joined = [patch for some in split(patches, cuts) if (patch := merge_patches(some)) is not None]
    whole = merge_patches(joined)

    assert_same(fold([] if whole is None else [whole]), fold(patches))


@given(fitting_patches(), st.integers(0, 100))
def test_storing_the_state_or_a_patch_on_the_way_changes_nothing(
    patches: list[Patch], cut: int
) -> None:
    before, after = split(patches, [cut])
    state = from_json(to_json(fold(before), AgentState), AgentState)
    for patch in after:
        state.apply(from_json(to_json(patch, Patch), Patch))

    assert_same(state, fold(patches))


@given(fitting_patches())
def test_joining_needs_the_patches_only_once_and_leaves_them_alone(patches: list[Patch]) -> None:
    before = copy.deepcopy(patches)

    assert merge_patches(patch for patch in patches) == merge_patches(before)
    assert patches == before


def test_a_finished_message_stands_for_all_that_it_grew_through() -> None:
    begun, whole = message("m"), message("m", TextPart("Hello"))
    grown = [TextGrown("m", 0, letter) for letter in "ello"]
    patches = [
        Patch(1, (MessageBegun(begun), PartOpened("m", TextPart("H")))),
        *(Patch(n, (change,)) for n, change in enumerate(grown, 2)),
        Patch(6, (MessageFinished(whole),)),
    ]

    assert merge_patches(patches) == Patch(6, (MessageBegun(begun), MessageFinished(whole)))
    assert merge_patches([]) is None


def test_of_a_runs_records_only_the_last_is_kept_and_the_runs_keep_their_order() -> None:
    """The oldest ended run is the one that is forgotten."""
    first, second = Run("r-1", TIME), Run("r-2", TIME)
    ended = Run("r-1", TIME, end=RunEnd.COMPLETED)
    patches = [
        Patch(1, (RunRecorded(first),)),
        Patch(2, (RunRecorded(Run("r-1", TIME, turns=1)),)),
        Patch(3, (RunRecorded(second),)),
        Patch(4, (RunRecorded(ended),)),
    ]
    joined = merge_patches(patches)
    assert joined is not None

    assert len(joined.changes) == 3
    assert list(fold([joined]).runs.items()) == [("r-1", ended), ("r-2", second)]


def test_a_result_ends_its_call_even_if_the_finished_message_is_without_it() -> None:
    result = ToolResult("call", "tool", ())
    patches = [
        Patch(1, (CallStarted("call"), MessageBegun(message("m", role=Role.TOOL)))),
        Patch(2, (PartOpened("m", result),)),
        Patch(3, (MessageFinished(message("m", role=Role.TOOL)),)),
    ]
    joined = merge_patches(patches)
    assert joined is not None

    assert fold(patches).started_calls == fold([joined]).started_calls == set()


@pytest.mark.parametrize("revision", [0, 4, 5])
def test_a_patch_that_is_not_newer_is_refused(revision: int) -> None:
    state = AgentState(revision=5)
    with pytest.raises(ValueError, match=f"patch {revision} is not newer than state 5"):
        state.apply(Patch(revision, ()))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (TextGrown("m", 1, "x"), "has no part 1"),
        (TextGrown("m", -1, "x"), "has no part -1"),
        (TextGrown("r", 0, "x"), "part 0 of r has no text"),
        (TextGrown("other", 0, "x"), "message other does not grow"),
        (TextGrown("whole", 0, "x"), "message whole does not grow"),
        (PartOpened("whole", TextPart("x")), "message whole does not grow"),
        (MessageFinished(Message("whole", Role.USER, (), TIME)), "message whole does not grow"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change: Change, problem: str) -> None:
    state = fold(
        [
            Patch(1, (MessageHeld(message("whole", TextPart(""))), HeldDelivered())),
            Patch(2, (MessageBegun(message("m", TextPart(""))),)),
            Patch(3, (MessageBegun(message("r", ToolResult("c", "t", ()))),)),
        ]
    )
    with pytest.raises(ValueError, match=problem):
        state.apply(Patch(4, (change,)))


def test_runs_and_answers_are_forgotten_oldest_first_but_no_run_that_goes_on() -> None:
    ended = {1, 2, 4}
    state = AgentState()
    for n in range(6):
        run = Run(f"r-{n}", TIME, end=RunEnd.COMPLETED if n in ended else None)
        answer = RecordedAnswer(f"q-{n}", "f", {})
        state.apply(Patch(n + 1, (RunRecorded(run), AnswerRecorded(answer))))

    assert list(state.runs) == ["r-0", "r-3", "r-5"]
    assert list(state.answers) == ["q-3", "q-4", "q-5"]


def message(message_id: str, *parts: Part, role: Role = Role.ASSISTANT) -> Message:
    return Message(message_id, role, parts, TIME)
