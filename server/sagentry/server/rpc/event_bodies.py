"""Events and deltas as the contract writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain import events
from sagentry.server.domain.runs import StopReason
from sagentry.server.rpc.convert import AGENT_STATUSES, RUN_ENDS, run_error_to_pb
from sagentry.server.rpc.frames import message_field
from sagentry.server.wire.display import todos_to_pb, tool_info_to_pb
from sagentry.server.wire.document import document_to_pb
from sagentry.server.wire.fields import EnumTable, time_to_pb
from sagentry.server.wire.message import ROLES, message_to_pb, usage_to_pb

TOOL_CALL_STEPS = EnumTable(events.ToolCallStep, pb.ToolCallStep, "TOOL_CALL_STEP_")
PART_KINDS = EnumTable(events.PartKind, pb.PartKind, "PART_KIND_")
STOP_REASONS = EnumTable(StopReason, pb.StopReason, "STOP_REASON_")
STREAM_END_REASONS = EnumTable(events.StreamEndReason, pb.StreamEndReason, "STREAM_END_REASON_")


def encoded_event(event: events.Event) -> bytes:
    """Returns the encoded `Event`."""
    message = pb.Event(
        sequence=event.sequence,
        agent_id=event.agent_id,
        conversation_id=event.conversation_id,
        run_id=event.run_id,
        owner_epoch=event.owner_epoch,
        subagent_path=event.subagent_path,
        time=time_to_pb(event.time),
    )
    body = event.body
    if isinstance(body, events.DisplayMessageSaved | events.DisplayMessageUpdated):
        # A row is passed on as its store sent it, without looking into it. The arm is the last field.
        arm = message_field(_ROW_FIELDS[type(body)], message_field(1, body.row.encoded))
        return message.SerializeToString() + arm
    fill = _FILL[type(body)]
    fill(message, body)
    return message.SerializeToString()


def delta_to_pb(delta: events.Delta) -> pb.Delta:
    """Returns a delta."""
    message = pb.Delta(
        message_id=delta.message_id,
        part_index=delta.part_index,
        run_id=delta.run_id,
        subagent_path=delta.subagent_path,
    )
    match delta.body:
        case events.TextDelta(offset, text):
            message.text.offset, message.text.text = offset, text
            message.text.SetInParent()
        case events.ArgumentsDelta(offset, text):
            message.arguments.offset, message.arguments.text = offset, text
            message.arguments.SetInParent()
        case events.PartStarted(kind, call_id, name):
            started = pb.PartStarted(kind=PART_KINDS.to_pb(kind), call_id=call_id, name=name)
            message.part_started.CopyFrom(started)
        case events.SignatureDelta(signature):
            message.signature = signature
        case events.PartFinished():
            message.part_finished.SetInParent()
        case _:
            assert_never(delta.body)
    return message


def tool_call_to_pb(body: events.ToolCallUpdated) -> pb.ToolCallUpdated:
    """Returns a step of a tool call."""
    return pb.ToolCallUpdated(
        message_id=body.message_id,
        call_id=body.call_id,
        step=TOOL_CALL_STEPS.to_pb(body.step),
        tool_info=tool_info_to_pb(body.tool_info),
    )


def _agent_started(event: pb.Event, body: events.AgentStarted) -> None:
    event.agent_started.CopyFrom(
        pb.AgentStarted(
            profile=body.profile, restored=body.restored, previous_owner=body.previous_owner
        )
    )


def _agent_stopped(event: pb.Event, body: events.AgentStopped) -> None:
    event.agent_stopped.CopyFrom(pb.AgentStopped(reason=STOP_REASONS.to_pb(body.reason)))


def _status_changed(event: pb.Event, body: events.StatusChanged) -> None:
    event.status_changed.CopyFrom(
        pb.StatusChanged(
            status=AGENT_STATUSES.to_pb(body.status),
            error=run_error_to_pb(body.error),
            pause_reason=body.pause_reason,
        )
    )


def _run_started(event: pb.Event, body: events.RunStarted) -> None:
    event.run_started.CopyFrom(pb.RunStarted(message_id=body.message_id, resumed=body.resumed))


def _run_ended(event: pb.Event, body: events.RunEnded) -> None:
    event.run_ended.CopyFrom(
        pb.RunEnded(
            end=RUN_ENDS.to_pb(body.end),
            error=run_error_to_pb(body.error),
            usage=usage_to_pb(body.usage),
            unsaved=body.unsaved,
        )
    )


def _message_started(event: pb.Event, body: events.MessageStarted) -> None:
    started = pb.MessageStarted(message_id=body.message_id, role=ROLES.to_pb(body.role))
    event.message_started.CopyFrom(started)


def _message_completed(event: pb.Event, body: events.MessageCompleted) -> None:
    event.message_completed.message.CopyFrom(message_to_pb(body.message))


def _message_truncated(event: pb.Event, body: events.MessageTruncated) -> None:
    event.message_truncated.message_id = body.message.message_id
    event.message_truncated.message.CopyFrom(message_to_pb(body.message))


def _message_queued(event: pb.Event, body: events.MessageQueued) -> None:
    event.message_queued.message.CopyFrom(message_to_pb(body.message))


def _tool_call_updated(event: pb.Event, body: events.ToolCallUpdated) -> None:
    event.tool_call_updated.CopyFrom(tool_call_to_pb(body))


def _todos_updated(event: pb.Event, body: events.TodosUpdated) -> None:
    event.todos_updated.CopyFrom(pb.TodosUpdated(todos=todos_to_pb(body.todos)))


def _title_changed(event: pb.Event, body: events.TitleChanged) -> None:
    event.title_changed.CopyFrom(pb.TitleChanged(title=body.title))


def _plugin_degraded(event: pb.Event, body: events.PluginDegraded) -> None:
    event.plugin_degraded.CopyFrom(
        pb.PluginDegraded(
            plugin=body.plugin,
            method=body.method,
            reason=body.reason,
            consequence=body.consequence,
        )
    )


def _plugin_recovered(event: pb.Event, body: events.PluginRecovered) -> None:
    event.plugin_recovered.CopyFrom(pb.PluginRecovered(plugin=body.plugin))


def _write_rejected(event: pb.Event, body: events.WriteRejected) -> None:
    event.write_rejected.CopyFrom(
        pb.WriteRejected(
            plugin=body.plugin,
            method=body.method,
            message_id=body.message_id,
            reason=body.reason,
            entry_id=body.entry_id,
        )
    )


def _history_repaired(event: pb.Event, body: events.HistoryRepaired) -> None:
    repairs = [
        pb.HistoryRepair(
            message_id=repair.message_id, call_id=repair.call_id, description=repair.description
        )
        for repair in body.repairs
    ]
    event.history_repaired.CopyFrom(pb.HistoryRepaired(repairs=repairs))


def _custom(event: pb.Event, body: events.CustomEvent) -> None:
    custom = pb.CustomEvent(name=body.name, document=document_to_pb(body.document))
    event.custom.CopyFrom(custom)


_ROW_FIELDS: dict[type, int] = {
    events.DisplayMessageSaved: pb.Event.DISPLAY_MESSAGE_SAVED_FIELD_NUMBER,
    events.DisplayMessageUpdated: pb.Event.DISPLAY_MESSAGE_UPDATED_FIELD_NUMBER,
}

# Any: each function takes the body that it is listed under.
_FILL: dict[type, Callable[[pb.Event, Any], None]] = {
    events.AgentStarted: _agent_started,
    events.AgentStopped: _agent_stopped,
    events.StatusChanged: _status_changed,
    events.RunStarted: _run_started,
    events.RunEnded: _run_ended,
    events.MessageStarted: _message_started,
    events.MessageCompleted: _message_completed,
    events.MessageTruncated: _message_truncated,
    events.MessageQueued: _message_queued,
    events.ToolCallUpdated: _tool_call_updated,
    events.TodosUpdated: _todos_updated,
    events.TitleChanged: _title_changed,
    events.PluginDegraded: _plugin_degraded,
    events.PluginRecovered: _plugin_recovered,
    events.WriteRejected: _write_rejected,
    events.HistoryRepaired: _history_repaired,
    events.CustomEvent: _custom,
}
