"""What a reader knows of an agent: the fold of everything its stream said."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2, interrupt_pb2, message_pb2
from sagentry.client._growing import GapError, GrowingMessage

_FINISHED_STEPS = (
    pb.TOOL_CALL_STEP_COMPLETED,
    pb.TOOL_CALL_STEP_FAILED,
    pb.TOOL_CALL_STEP_CANCELLED,
)

REMEMBERED_RUNS = 16
"""As many as a snapshot has."""


@dataclass(slots=True)
class AgentView:
    """An agent as a reader knows it. Only its follower changes it.

    Attributes:
        agent: Status, open items, todos, title.
        growing: Messages of the model that are not whole, by message_id, in order of beginning.
        held: Messages that wait for the next run boundary, in order of acceptance.
        calls: Tool calls in flight, by call_id.
        runs: The last runs, by run_id, oldest first.
        rows: The transcript by display_message_id; `transcript` has it in order.
        complete_to: All rows with a `change` up to this one are here.
        is_complete: Whether the rows are all that there were when the stream (re)began. False while they
            are being read.
    """

    agent: agent_pb2.Agent = field(default_factory=agent_pb2.Agent)
    growing: dict[str, GrowingMessage] = field(default_factory=dict)
    held: list[message_pb2.Message] = field(default_factory=list)
    calls: dict[str, pb.ToolCallUpdated] = field(default_factory=dict)
    runs: dict[str, agent_pb2.Run] = field(default_factory=dict)
    rows: dict[str, display_pb2.DisplayMessage] = field(default_factory=dict)
    complete_to: int = 0
    is_complete: bool = False

    def transcript(self) -> list[display_pb2.DisplayMessage]:
        """Returns the rows in their order. Costs a sort: not for every delta."""
        return sorted(self.rows.values(), key=lambda row: row.position)

    def upsert(self, row: display_pb2.DisplayMessage) -> bool:
        """Keeps the newer of a row and the one of its id; returns whether that is this one."""
        known = self.rows.get(row.display_message_id)
        if known is not None and known.change >= row.change:
            return False
        # A copy: the row of a response would keep the whole response in memory.
        self.rows[row.display_message_id] = copy.copy(row)
        return True

    def begin(self, snapshot: pb.Snapshot) -> None:
        """Forgets all but the rows, and begins with a whole snapshot."""
        # The stream tells of rows that are written from now on.
        self.is_complete = False
        self.agent = copy.copy(snapshot.agent)
        self.growing = {one.message_id: GrowingMessage.of(one) for one in snapshot.growing_messages}
        self.held = list(snapshot.held_messages)
        self.calls = {call.call_id: call for call in snapshot.calls}
        self.runs = {run.run_id: run for run in reversed(snapshot.runs)}

    def grow(self, delta: pb.Delta) -> bool:
        """Takes in a delta; returns False for one that it has already.

        Raises:
            GapError: The message it belongs to, or a part before it, is missing.
        """
        message = self.growing.get(delta.message_id)
        if message is None:
            problem = f"message {delta.message_id} grows and was never begun"
            raise GapError(problem)
        return message.apply(delta)

    def apply(self, event: pb.Event) -> None:
        """Takes in a durable event. One that it does not know changes nothing."""
        kind = event.WhichOneof("kind")
        if kind is None:
            return
        if event.subagent_path:
            # The agent's own status, runs and todos are not those of its sub-agents.
            self._apply_message(kind, event)
            return
        match kind:
            case "agent_started":
                self.agent.live = True
                self.agent.profile = event.agent_started.profile
                self.agent.owner_epoch = event.owner_epoch
            case "agent_stopped":
                self.agent.live = False
                self.agent.status = agent_pb2.AGENT_STATUS_ASLEEP
                self.growing.clear()
                self.calls.clear()
            case "status_changed":
                self._status_changed(event.status_changed)
            case "run_started" | "run_ended":
                self._run_changed(event)
            case "interrupt_updated":
                self._interrupt_updated(event.interrupt_updated.interrupt)
            case "todos_updated":
                del self.agent.todos[:]
                self.agent.todos.extend(event.todos_updated.todos)
            case "title_changed":
                self.agent.title = event.title_changed.title
            case _:
                self._apply_message(kind, event)

    def _apply_message(self, kind: str, event: pb.Event) -> None:
        match kind:
            case "message_started":
                started = event.message_started
                self.growing[started.message_id] = GrowingMessage(
                    started.message_id, started.role, event.run_id
                )
            case "message_completed":
                self.growing.pop(event.message_completed.message.message_id, None)
            case "message_truncated":
                self.growing.pop(event.message_truncated.message_id, None)
            case "message_queued":
                self.held.append(event.message_queued.message)
                self.agent.held_messages = len(self.held)
            case "tool_call_updated":
                call = event.tool_call_updated
                if call.step in _FINISHED_STEPS:
                    self.calls.pop(call.call_id, None)
                else:
                    self.calls[call.call_id] = call
            case "display_message_saved":
                self._row_told(event.display_message_saved.display_message)
            case "display_message_updated":
                self._row_told(event.display_message_updated.display_message)
            case _:
                pass

    def _row_told(self, row: display_pb2.DisplayMessage) -> None:
        self.upsert(row)
        if self.is_complete:
            # The stream leaves none out, and tells of them by ascending change.
            self.complete_to = max(self.complete_to, row.change)

    def _status_changed(self, changed: pb.StatusChanged) -> None:
        self.agent.status = changed.status
        self.agent.pause_reason = changed.pause_reason
        if changed.HasField("error"):
            self.agent.error.CopyFrom(changed.error)
        else:
            self.agent.ClearField("error")

    def _run_changed(self, event: pb.Event) -> None:
        run = self.runs.setdefault(event.run_id, agent_pb2.Run(run_id=event.run_id))
        if event.HasField("run_started"):
            self.agent.run_id = event.run_id
            run.phase = agent_pb2.RUN_PHASE_MODEL
            run.start_time.CopyFrom(event.time)
            # What was held is delivered where a run begins or goes on.
            self.held.clear()
            self.agent.held_messages = 0
        else:
            ended = event.run_ended
            self.agent.run_id = ""
            run.phase = agent_pb2.RUN_PHASE_ENDED
            run.end, run.unsaved = ended.end, ended.unsaved
            run.usage.CopyFrom(ended.usage)
            run.error.CopyFrom(ended.error)
            run.end_time.CopyFrom(event.time)
        while len(self.runs) > REMEMBERED_RUNS:
            del self.runs[next(iter(self.runs))]

    def _interrupt_updated(self, interrupt: interrupt_pb2.Interrupt) -> None:
        is_open = any(
            one.state == interrupt_pb2.INTERRUPT_ITEM_STATE_OPEN for one in interrupt.items
        )
        if is_open:
            self.agent.interrupt.CopyFrom(interrupt)
        else:
            self.agent.ClearField("interrupt")
