"""What an agent thinks with, and the changes that make it.

The state changes through `apply` only. A change is recorded in the journal, sent to the store inside a
patch, and folded at a start by this same function, so the three can never differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sagentry.server.domain.display import Todo
from sagentry.server.domain.messages import (
    Document,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from sagentry.server.domain.runs import AgentStatus, Run, RunError

SCHEMA_VERSION = 1
"""Version of the state's JSON form. A state with a higher one is not read."""

REMEMBERED_ANSWERS = 256
"""Answers to repeated calls are kept for this many calls of a conversation."""

REMEMBERED_RUNS = 64
"""Runs that GetRun knows of; runs that have not ended are never forgotten."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How an agent is started; stored at the first start.

    Attributes:
        profile: Name of the profile in the configuration.
        overrides: Settings that replace those of the profile, as one JSON object.
        tool_context: What tools and the preprocessor are given, as one JSON object; None when it was
            given as ephemeral.
    """

    profile: str = "default"
    overrides: Document | None = None
    tool_context: Document | None = None


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The answer that a call got, for when it is repeated.

    Attributes:
        request_id: The call's id.
        fingerprint: SHA-256 of method and content, in hex: another content under the same id is refused.
        answer: What was answered, as facts of the method.
    """

    request_id: str
    fingerprint: str
    answer: dict[str, str]


@dataclass(frozen=True, slots=True)
class OptionsSet:
    """The start options were stored."""

    options: StartOptions


@dataclass(frozen=True, slots=True)
class MessageHeld:
    """A message was accepted and waits for the next run boundary."""

    message: Message


@dataclass(frozen=True, slots=True)
class HeldDelivered:
    """All held messages became part of the conversation, in order of acceptance."""


@dataclass(frozen=True, slots=True)
class MessageBegun:
    """A message began to grow at the end of the conversation."""

    message: Message


@dataclass(frozen=True, slots=True)
class PartOpened:
    """A growing message got another part."""

    message_id: str
    part: Part


@dataclass(frozen=True, slots=True)
class TextGrown:
    """The text, thinking or arguments of a growing message's part grew by `text`."""

    message_id: str
    part_index: int
    text: str


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """A growing message is whole; replaces what was recorded of it while it grew.

    A message of which nothing was recorded, because the disk refused it, is added as it is.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call was given to its tool. Without a result after a crash its outcome is unknown."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AnswerRecorded:
    """A call was answered."""

    answer: RecordedAnswer


@dataclass(frozen=True, slots=True)
class RunRecorded:
    """A run was accepted or something about it changed; replaces the run of that id."""

    run: Run


@dataclass(frozen=True, slots=True)
class StatusSet:
    """The status between runs changed."""

    status: AgentStatus
    error: RunError | None = None
    pause_reason: str = ""


@dataclass(frozen=True, slots=True)
class TodosSet:
    """The todo list changed."""

    todos: tuple[Todo, ...]


@dataclass(frozen=True, slots=True)
class TitleSet:
    """The conversation got a title."""

    title: str


Change = (
    OptionsSet
    | MessageHeld
    | HeldDelivered
    | MessageBegun
    | PartOpened
    | TextGrown
    | MessageFinished
    | CallStarted
    | AnswerRecorded
    | RunRecorded
    | StatusSet
    | TodosSet
    | TitleSet
)


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes that happened together, numbered by the conversation's revision."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class AgentState:
    """The state of one agent.

    Attributes:
        revision: Number of the last change set; 0 before the first.
        options: How it was started; None before the first start.
        messages: The conversation, growing messages at its end.
        growing: Ids of messages that are not whole.
        held: Accepted messages that wait for the next run boundary.
        started_calls: Calls that were given to their tools and have no result yet.
        answers: Recorded answers by request_id, oldest first.
        runs: Known runs by run_id, oldest first.
        status: Status between runs.
        error: Why the last run failed.
        pause_reason: Why it is paused.
        todos: The todo list.
        title: Title of the conversation.
    """

    revision: int = 0
    options: StartOptions | None = None
    messages: list[Message] = field(default_factory=list)
    growing: set[str] = field(default_factory=set)
    held: list[Message] = field(default_factory=list)
    started_calls: set[str] = field(default_factory=set)
    answers: dict[str, RecordedAnswer] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    status: AgentStatus = AgentStatus.IDLE
    error: RunError | None = None
    pause_reason: str = ""
    todos: tuple[Todo, ...] = ()
    title: str = ""

    def apply(self, patch: Patch) -> None:
        """Applies a patch; its revision must be higher than the state's.

        Raises:
            ValueError: The patch does not fit: it is of an older revision, or names a message that does
                not grow or a part that it does not have.
        """
        if patch.revision <= self.revision:
            problem = f"patch {patch.revision} is not newer than state {self.revision}"
            raise ValueError(problem)
        for change in patch.changes:
            _APPLY[type(change)](self, change)
        self.revision = patch.revision

    def message(self, message_id: str) -> Message | None:
        """Returns the message of that id, or None; looks from the end, where messages grow."""
        index = self._index(message_id)
        return None if index is None else self.messages[index]

    def _index(self, message_id: str) -> int | None:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].message_id == message_id:
                return index
        return None

    def growing_index(self, message_id: str) -> int:
        """Where a message that still grows is. Raises ValueError if it does not grow."""
        index = self._index(message_id)
        if index is None or message_id not in self.growing:
            message = f"message {message_id} does not grow"
            raise ValueError(message)
        return index


def _options_set(state: AgentState, change: OptionsSet) -> None:
    state.options = change.options


def _message_held(state: AgentState, change: MessageHeld) -> None:
    state.held.append(change.message)


def _held_delivered(state: AgentState, _change: HeldDelivered) -> None:
    state.messages.extend(state.held)
    state.held.clear()


def _message_begun(state: AgentState, change: MessageBegun) -> None:
    state.messages.append(change.message)
    state.growing.add(change.message.message_id)


def _part_opened(state: AgentState, change: PartOpened) -> None:
    index = state.growing_index(change.message_id)
    message = state.messages[index]
    state.messages[index] = replace(message, parts=(*message.parts, change.part))
    if isinstance(change.part, ToolResult):
        state.started_calls.discard(change.part.call_id)


def _text_grown(state: AgentState, change: TextGrown) -> None:
    index = state.growing_index(change.message_id)
    message = state.messages[index]
    parts = list(message.parts)
    if not 0 <= change.part_index < len(parts):
        problem = f"message {change.message_id} has no part {change.part_index}"
        raise ValueError(problem)
    part = parts[change.part_index]
    match part:
        case TextPart() | ThinkingPart():
            parts[change.part_index] = replace(part, text=part.text + change.text)
        case ToolCall():
            grown = part.arguments_json + change.text
            parts[change.part_index] = replace(part, arguments_json=grown)
        case _:
            message_text = f"part {change.part_index} of {change.message_id} has no text"
            raise ValueError(message_text)
    state.messages[index] = replace(message, parts=tuple(parts))


def _message_finished(state: AgentState, change: MessageFinished) -> None:
    if state.message(change.message.message_id) is None:
        state.messages.append(change.message)
    else:
        state.messages[state.growing_index(change.message.message_id)] = change.message
    state.growing.discard(change.message.message_id)
    for result in change.message.tool_results():
        state.started_calls.discard(result.call_id)


def _call_started(state: AgentState, change: CallStarted) -> None:
    state.started_calls.add(change.call_id)


def _answer_recorded(state: AgentState, change: AnswerRecorded) -> None:
    state.answers[change.answer.request_id] = change.answer
    while len(state.answers) > REMEMBERED_ANSWERS:
        del state.answers[next(iter(state.answers))]


def _run_recorded(state: AgentState, change: RunRecorded) -> None:
    state.runs[change.run.run_id] = change.run
    over = len(state.runs) - REMEMBERED_RUNS
    if over > 0:
        ended = [run_id for run_id, run in state.runs.items() if run.end is not None]
        for run_id in ended[:over]:
            del state.runs[run_id]


def _status_set(state: AgentState, change: StatusSet) -> None:
    state.status = change.status
    state.error = change.error
    state.pause_reason = change.pause_reason


def _todos_set(state: AgentState, change: TodosSet) -> None:
    state.todos = change.todos


def _title_set(state: AgentState, change: TitleSet) -> None:
    state.title = change.title


_APPLY: dict[type, Callable[[AgentState, Any], None]] = {
    OptionsSet: _options_set,
    MessageHeld: _message_held,
    HeldDelivered: _held_delivered,
    MessageBegun: _message_begun,
    PartOpened: _part_opened,
    TextGrown: _text_grown,
    MessageFinished: _message_finished,
    CallStarted: _call_started,
    AnswerRecorded: _answer_recorded,
    RunRecorded: _run_recorded,
    StatusSet: _status_set,
    TodosSet: _todos_set,
    TitleSet: _title_set,
}


def merge_patches(patches: Iterable[Patch]) -> Patch | None:
    """Joins patches into one that has the same effect, without what a later change replaces.

    What was recorded of a message while it grew is left out once the message is finished in the same
    merge, and of successive records of one run only the last stays. Returns None for no patches.
    """
    ordered = list(patches)
    if not ordered:
        return None
    merged: list[Change] = []
    # Backwards, since a change is replaced by later ones only.
    settled: dict[str, set[str]] = {}
    run_id: str | None = None
    for change in reversed([change for patch in ordered for change in patch.changes]):
        match change:
            case MessageFinished(message=message):
                settled[message.message_id] = {one.call_id for one in message.tool_results()}
            case MessageBegun(message=message):
                settled.pop(message.message_id, None)
            case PartOpened() | TextGrown() if _is_replaced(change, settled):
                continue
            case RunRecorded(run=run):
                # Records of other runs between two of one run are why both stay: the order of the runs,
                # and with it which of them are forgotten, depends on it.
                if run.run_id == run_id:
                    continue
                run_id = run.run_id
            case _:
                pass
        merged.append(change)
    merged.reverse()
    return Patch(revision=ordered[-1].revision, changes=tuple(merged))


def _is_replaced(change: PartOpened | TextGrown, settled: dict[str, set[str]]) -> bool:
    """Whether the message is finished later, and a tool's result is in what it becomes."""
    calls = settled.get(change.message_id)
    if calls is None:
        return False
    if isinstance(change, PartOpened) and isinstance(change.part, ToolResult):
        return change.part.call_id in calls
    return True
