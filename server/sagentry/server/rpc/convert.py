"""Agents, runs and what clients ask of them."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf import duration_pb2

from sagentry.api.agent.v1 import agent_pb2, agent_service_pb2, event_service_pb2
from sagentry.api.type.v1 import message_pb2
from sagentry.server.domain.commands import AgentOptions, DisplayChoice
from sagentry.server.domain.display import ListOrder
from sagentry.server.domain.events import AgentView, EventKind, LagPolicy
from sagentry.server.domain.messages import MediaPart, Message, Role, TextPart
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError, RunPhase
from sagentry.server.domain.state import StartOptions
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.display import todos_to_pb
from sagentry.server.wire.document import json_object_from_pb
from sagentry.server.wire.fields import (
    EnumTable,
    duration_seconds,
    optional_id,
    require_id,
    time_to_pb,
)
from sagentry.server.wire.message import message_from_pb, usage_to_pb

MAX_TOOL_CONTEXT_BYTES = 64 * 1024
MAX_WAIT_SECONDS = 60

_CLIENT_FIELDS = {"role", "parts", "status", "metadata"}

AGENT_STATUSES = EnumTable(AgentStatus, agent_pb2.AgentStatus, "AGENT_STATUS_")
RUN_PHASES = EnumTable(RunPhase, agent_pb2.RunPhase, "RUN_PHASE_")
RUN_ENDS = EnumTable(RunEnd, agent_pb2.RunEnd, "RUN_END_")
EVENT_KINDS = EnumTable(EventKind, event_service_pb2.EventKind, "EVENT_KIND_")
LAG_POLICIES = EnumTable(LagPolicy, event_service_pb2.LagPolicy, "LAG_POLICY_")
ROW_ORDERS = EnumTable(ListOrder, agent_service_pb2.DisplayMessageOrder, "DISPLAY_MESSAGE_ORDER_")


def agent_to_pb(view: AgentView) -> agent_pb2.Agent:
    """Returns an agent at one moment."""
    time = view.last_activity_time
    return agent_pb2.Agent(
        agent_id=view.agent_id,
        conversation_id=view.conversation_id,
        profile=view.profile,
        status=AGENT_STATUSES.to_pb(view.status),
        live=view.live,
        run_id=view.run_id,
        todos=todos_to_pb(view.todos),
        title=view.title,
        held_messages=view.held_messages,
        error=run_error_to_pb(view.error),
        pause_reason=view.pause_reason,
        owner_epoch=view.owner_epoch,
        last_activity_time=None if time is None else time_to_pb(time),
        viewers=view.viewers,
    )


def run_to_pb(run: Run, phase: RunPhase | None = None) -> agent_pb2.Run:
    """Returns a run; its phase, unless it is given, follows from whether it has ended."""
    if phase is None:
        phase = RunPhase.MODEL if run.end is None else RunPhase.ENDED
    message = agent_pb2.Run(
        run_id=run.run_id,
        phase=RUN_PHASES.to_pb(phase),
        error=run_error_to_pb(run.error),
        usage=usage_to_pb(run.usage),
        turns=run.turns,
        unsaved=run.unsaved,
        start_time=time_to_pb(run.start_time),
        end_time=None if run.end_time is None else time_to_pb(run.end_time),
    )
    if run.end is not None:
        message.end = RUN_ENDS.to_pb(run.end)
    return message


def run_error_to_pb(error: RunError | None) -> agent_pb2.RunError | None:
    """Returns why a run failed, as an optional field takes it."""
    if error is None:
        return None
    return agent_pb2.RunError(reason=error.reason, message=error.message, retryable=error.retryable)


def options_from_pb(
    options: agent_service_pb2.StartOptions, *, field: str = "options"
) -> AgentOptions:
    """Returns how an agent is to be started.

    Raises:
        InvalidInputError: A field is malformed or over its limit.
    """
    overrides = tool_context = None
    if options.HasField("overrides"):
        overrides = json_object_from_pb(options.overrides, field=f"{field}.overrides")
    if options.HasField("tool_context"):
        place = f"{field}.tool_context"
        tool_context = json_object_from_pb(options.tool_context, field=place)
        size = len((tool_context.json or "").encode())
        if size > MAX_TOOL_CONTEXT_BYTES:
            problem = f"has {size} bytes and at most {MAX_TOOL_CONTEXT_BYTES} are allowed"
            raise InvalidInputError(place, problem, limit=MAX_TOOL_CONTEXT_BYTES, actual=size)
    ephemeral = ""
    if options.ephemeral_tool_context and tool_context is not None:
        ephemeral, tool_context = tool_context.json or "", None
    profile = optional_id(options.profile, f"{field}.profile") or "default"
    return AgentOptions(
        conversation_id=optional_id(options.conversation_id, f"{field}.conversation_id"),
        options=StartOptions(profile=profile, overrides=overrides, tool_context=tool_context),
        ephemeral_tool_context_json=ephemeral,
    )


def user_message_from_pb(request: agent_service_pb2.AddMessageRequest) -> Message:
    """Returns the message that a client hands in.

    Raises:
        InvalidInputError: A field is missing, malformed, or not a client's to set.
        LimitExceededError: MESSAGE_TOO_LARGE.
    """
    if not request.HasField("message"):
        raise InvalidInputError("message", "is required")
    message = _client_message(request.message, "message")
    if message.role is not Role.USER:
        raise InvalidInputError("message.role", "must be user", actual=message.role.name)
    return message


def _client_message(message_pb: message_pb2.Message, field: str) -> Message:
    for descriptor, _value in message_pb.ListFields():
        if descriptor.name not in _CLIENT_FIELDS:
            raise InvalidInputError(f"{field}.{descriptor.name}", "is the server's to set")
    message = message_from_pb(message_pb, field=field)
    for index, part in enumerate(message.parts):
        place = f"{field}.parts[{index}]"
        if not isinstance(part, TextPart | MediaPart):
            raise InvalidInputError(place, "must be text, image, file or audio")
        if isinstance(part, TextPart) and not part.text:
            raise InvalidInputError(f"{place}.text.text", "must not be empty")
    return message


def display_choice_from_pb(
    request: agent_service_pb2.AddMessageRequest,
) -> Message | DisplayChoice | None:
    """Returns what people are to see of a message; None lets the preprocessor decide.

    Raises:
        InvalidInputError: The message for people is malformed.
        LimitExceededError: MESSAGE_TOO_LARGE.
    """
    match request.WhichOneof("display"):
        case "display_message":
            return _client_message(request.display_message, "display_message")
        case "display_same":
            return DisplayChoice.SAME
        case "display_nothing":
            return DisplayChoice.NOTHING
        case _:
            return None


def wait_from_pb(wait: duration_pb2.Duration) -> timedelta:
    """Returns how long to wait for the end of a run.

    Raises:
        InvalidInputError: It is not 0 to 60 s.
    """
    seconds = duration_seconds(wait)
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        problem = f"must be 0 to {MAX_WAIT_SECONDS} s"
        raise InvalidInputError("wait", problem, limit=MAX_WAIT_SECONDS, actual=seconds)
    return timedelta(seconds=seconds)


def row_order_from_pb(value: agent_service_pb2.DisplayMessageOrder.ValueType) -> ListOrder:
    """Returns the order of a list of rows.

    Raises:
        InvalidInputError: The order is unknown.
    """
    if value == agent_service_pb2.DISPLAY_MESSAGE_ORDER_UNSPECIFIED:
        return ListOrder.POSITION_ASCENDING
    return ROW_ORDERS.require(value, "order")


def lag_policy_from_pb(value: event_service_pb2.LagPolicy.ValueType) -> LagPolicy:
    """Returns what happens when a reader falls behind.

    Raises:
        InvalidInputError: The policy is unknown.
    """
    if value == event_service_pb2.LAG_POLICY_UNSPECIFIED:
        return LagPolicy.CONFLATE
    return LAG_POLICIES.require(value, "policy")


def viewer_from_pb(request: event_service_pb2.SubscribeEventsRequest) -> str:
    """Returns who looks at a stream; empty for nobody.

    Raises:
        InvalidInputError: The viewer has no id.
    """
    if not request.HasField("viewer"):
        return ""
    return require_id(request.viewer.viewer_id, "viewer.viewer_id")
