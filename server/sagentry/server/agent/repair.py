"""What a crash or a fault leaves open is closed: cut messages, calls without result, runs without end.

Nothing is run again. A call that had been given to its tool has an unknown outcome; the model and people
are told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sagentry.server.agent.items import display_items
from sagentry.server.agent.run import runnable_calls
from sagentry.server.agent.tool_batch import outcome_info, status_of
from sagentry.server.domain.display import ToolStatus
from sagentry.server.domain.events import (
    EventBody,
    HistoryRepair,
    HistoryRepaired,
    MessageCompleted,
    MessageTruncated,
    RunEnded,
    ToolCallStep,
    ToolCallUpdated,
)
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import (
    Message,
    MessageStatus,
    Role,
    TextPart,
    ToolCall,
    ToolResult,
)
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError
from sagentry.server.domain.state import (
    AgentState,
    Change,
    MessageBegun,
    MessageFinished,
    RunRecorded,
    StatusSet,
)
from sagentry.server.domain.tools import ToolFailure, ToolOutcome
from sagentry.server.domain.writes import DisplayWrite, SaveMessage, UpdateToolStatus

SERVER_STOPPED = "the server stopped"
RUN_FAILED = "the run failed"

RUN_LOST = RunError("RUN_LOST", "The server stopped during the run.", retryable=True)


@dataclass(slots=True)
class Repair:
    """What closes the open ends of a state.

    Attributes:
        changes: For the state.
        writes: For the display store.
        events: (event, run_id) for readers, in order.
    """

    changes: list[Change] = field(default_factory=list)
    writes: list[DisplayWrite] = field(default_factory=list)
    events: list[tuple[EventBody, str]] = field(default_factory=list)
    repairs: list[HistoryRepair] = field(default_factory=list)


def repair(state: AgentState, now: datetime) -> Repair:
    """Finds what is open in a state that no agent runs, and how to close it."""
    found = close_messages(state, now, SERVER_STOPPED)
    for run in state.runs.values():
        if run.begun and run.end is None:
            _lose(found, run, now)
    return found


def close_messages(state: AgentState, now: datetime, cause: str) -> Repair:
    """Finds the messages and calls that are open while nothing runs, and how to close them.

    Args:
        state: The state.
        now: The time.
        cause: What left them open, in words for the model and people.
    """
    found = Repair()
    for message in _growing(state, Role.ASSISTANT):
        _cut(found, message)
    _close_calls(found, state, now, cause)
    if found.repairs:
        found.events.append((HistoryRepaired(tuple(found.repairs)), ""))
    return found


def _growing(state: AgentState, role: Role) -> Sequence[Message]:
    return [m for m in state.messages if m.message_id in state.growing and m.role is role]


def _cut(found: Repair, message: Message) -> None:
    cut = replace(message, status=MessageStatus.STREAM_ERROR)
    found.changes.append(MessageFinished(cut))
    items = display_items(cut)
    if items:
        found.writes.append(SaveMessage(cut, items))
    found.events.append((MessageTruncated(cut), message.run_id))


def _close_calls(found: Repair, state: AgentState, now: datetime, cause: str) -> None:
    """Answers the calls of the last assistant message that have no result."""
    index = _last_assistant(state)
    after = () if index is None else state.messages[index + 1 :]
    growing = _growing(state, Role.TOOL)
    own = next((message for message in growing if message in after), None)
    for message in growing:
        if message is not own:
            # Of an earlier turn: whatever it lacks, the model view makes up for.
            found.changes.append(MessageFinished(message))
    if index is None:
        return
    asking = state.messages[index]
    results = {result.call_id: result for message in after for result in message.tool_results()}
    calls = runnable_calls(asking)
    open_calls = [call for call in calls if call.call_id not in results]
    if not open_calls and own is None:
        return
    for call in open_calls:
        outcome = _outcome(cause, was_started=call.call_id in state.started_calls)
        results[call.call_id] = _answer(found, asking, call, outcome)
    if own is None:
        own = Message(new_id("msg"), Role.TOOL, (), now, run_id=asking.run_id)
        found.changes.append(MessageBegun(own))
    answered = replace(own, parts=tuple(results[call.call_id] for call in calls))
    found.changes.append(MessageFinished(answered))
    found.writes.append(SaveMessage(answered, display_items(answered)))
    found.events.append((MessageCompleted(answered), asking.run_id))


def _outcome(cause: str, *, was_started: bool) -> ToolOutcome:
    if was_started:
        return ToolOutcome(
            f"Outcome unknown: {cause} while this call was under way. It may or may not have taken "
            "effect, and it was not repeated.",
            ToolFailure.OUTCOME_UNKNOWN,
        )
    return ToolOutcome(f"Not run: {cause} before this call began.", ToolFailure.NOT_RUN)


def _answer(found: Repair, asking: Message, call: ToolCall, outcome: ToolOutcome) -> ToolResult:
    info = outcome_info(call, outcome, ToolStatus.FAILED)
    found.writes.append(UpdateToolStatus(asking.message_id, call.call_id, status_of(outcome), info))
    step = ToolCallUpdated(asking.message_id, call.call_id, ToolCallStep.FAILED, info)
    found.events.append((step, asking.run_id))
    found.repairs.append(HistoryRepair(asking.message_id, call.call_id, outcome.text))
    return ToolResult(call.call_id, call.name, (TextPart(outcome.text),), is_error=True)


def _last_assistant(state: AgentState) -> int | None:
    for index in range(len(state.messages) - 1, -1, -1):
        if state.messages[index].role is Role.ASSISTANT:
            return index
    return None


def _lose(found: Repair, run: Run, now: datetime) -> None:
    lost = replace(run, end=RunEnd.LOST, error=RUN_LOST, end_time=now)
    found.changes.append(RunRecorded(lost))
    found.changes.append(StatusSet(AgentStatus.ERROR, RUN_LOST))
    found.events.append((RunEnded(RunEnd.LOST, RUN_LOST, run.usage, unsaved=0), run.run_id))
