"""What happens to an agent, as its readers are told. Meanings: the contract's `event_service.proto`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from sagentry.server.domain.display import DisplayMessage, Todo, ToolInfo
from sagentry.server.domain.messages import Document, Message, Role, TokenUsage
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError, StopReason


class EventKind(enum.Enum):
    """Kinds of events, for filters."""

    LIFE = "life"
    STATUS = "status"
    RUN = "run"
    MESSAGE = "message"
    DELTA = "delta"
    TOOL = "tool"
    INTERRUPT = "interrupt"
    DISPLAY = "display"
    SUMMARY = "summary"
    HEALTH = "health"
    CUSTOM = "custom"


class ToolCallStep(enum.Enum):
    """Steps of a tool call."""

    IDENTIFIED = "identified"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class PartKind(enum.Enum):
    """Kinds of parts of a growing message."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    OTHER = "other"


class LagPolicy(enum.Enum):
    """What happens when a reader falls behind."""

    CONFLATE = "conflate"
    DISCONNECT = "disconnect"


class StreamEndReason(enum.Enum):
    """Why a stream ends."""

    DRAINING = "draining"
    LAGGED = "lagged"
    TOKEN_EXPIRED = "token_expired"  # noqa: S105 - not a secret
    FENCED = "fenced"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent became live."""

    profile: str
    restored: bool
    previous_owner: str = ""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The status changed."""

    status: AgentStatus
    error: RunError | None = None
    pause_reason: str = ""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began or went on."""

    message_id: str = ""
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended; its events are all before this one, row events excepted when `unsaved` > 0."""

    end: RunEnd
    error: RunError | None
    usage: TokenUsage
    unsaved: int


@dataclass(frozen=True, slots=True)
class MessageStarted:
    """A message began; deltas follow."""

    message_id: str
    role: Role


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """A message is whole."""

    message: Message


@dataclass(frozen=True, slots=True)
class MessageTruncated:
    """A message was cut off by a crash: readers may have more of it than was kept."""

    message: Message


@dataclass(frozen=True, slots=True)
class MessageQueued:
    """A message waits for the next run boundary."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolCallUpdated:
    """A tool call took a step."""

    message_id: str
    call_id: str
    step: ToolCallStep
    tool_info: ToolInfo


@dataclass(frozen=True, slots=True)
class DisplayMessageSaved:
    """A row was saved."""

    row: DisplayMessage


@dataclass(frozen=True, slots=True)
class DisplayMessageUpdated:
    """A row was changed."""

    row: DisplayMessage


@dataclass(frozen=True, slots=True)
class TodosUpdated:
    """The todo list changed."""

    todos: tuple[Todo, ...]


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """The title changed."""

    title: str


@dataclass(frozen=True, slots=True)
class PluginDegraded:
    """A plugin of the agent fails."""

    plugin: str
    method: str
    reason: str
    consequence: str


@dataclass(frozen=True, slots=True)
class PluginRecovered:
    """A plugin of the agent works again."""

    plugin: str


@dataclass(frozen=True, slots=True)
class WriteRejected:
    """A write was refused for good and set aside."""

    plugin: str
    method: str
    message_id: str
    reason: str
    entry_id: str


@dataclass(frozen=True, slots=True)
class HistoryRepair:
    """One repair of the history."""

    message_id: str
    call_id: str
    description: str


@dataclass(frozen=True, slots=True)
class HistoryRepaired:
    """The history was made valid for the model."""

    repairs: tuple[HistoryRepair, ...]


@dataclass(frozen=True, slots=True)
class CustomEvent:
    """An application's own event."""

    name: str
    document: Document


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """The agent is no longer live."""

    reason: StopReason


EventBody = (
    AgentStarted
    | StatusChanged
    | RunStarted
    | RunEnded
    | MessageStarted
    | MessageCompleted
    | MessageTruncated
    | MessageQueued
    | ToolCallUpdated
    | DisplayMessageSaved
    | DisplayMessageUpdated
    | TodosUpdated
    | TitleChanged
    | PluginDegraded
    | PluginRecovered
    | WriteRejected
    | HistoryRepaired
    | CustomEvent
    | AgentStopped
)

KIND_OF: dict[type, EventKind] = {
    AgentStarted: EventKind.LIFE,
    AgentStopped: EventKind.LIFE,
    StatusChanged: EventKind.STATUS,
    RunStarted: EventKind.RUN,
    RunEnded: EventKind.RUN,
    MessageStarted: EventKind.MESSAGE,
    MessageCompleted: EventKind.MESSAGE,
    MessageTruncated: EventKind.MESSAGE,
    MessageQueued: EventKind.MESSAGE,
    ToolCallUpdated: EventKind.TOOL,
    DisplayMessageSaved: EventKind.DISPLAY,
    DisplayMessageUpdated: EventKind.DISPLAY,
    TodosUpdated: EventKind.SUMMARY,
    TitleChanged: EventKind.SUMMARY,
    PluginDegraded: EventKind.HEALTH,
    PluginRecovered: EventKind.HEALTH,
    WriteRejected: EventKind.HEALTH,
    HistoryRepaired: EventKind.HEALTH,
    CustomEvent: EventKind.CUSTOM,
}
"""The filter kind of each event."""


@dataclass(frozen=True, slots=True)
class Event:
    """A durable event.

    Attributes:
        sequence: Number in the agent's log, from 1, without gaps.
        agent_id: The agent.
        conversation_id: Its conversation.
        run_id: The run that it belongs to; empty for none.
        owner_epoch: Epoch of ownership; information.
        time: When it happened.
        body: What happened.
        subagent_path: The sub-agent it comes from; empty for the agent itself.
    """

    sequence: int
    agent_id: str
    conversation_id: str
    run_id: str
    owner_epoch: int
    time: datetime
    body: EventBody
    subagent_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartStarted:
    """A part of a growing message began."""

    kind: PartKind
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text or thinking grew; `offset` counts the UTF-8 bytes that the part had before."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """Arguments of a tool call grew; `offset` as in TextDelta."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class SignatureDelta:
    """The signature of a thinking part, whole."""

    signature: bytes


@dataclass(frozen=True, slots=True)
class PartFinished:
    """A part is whole."""


DeltaBody = PartStarted | TextDelta | ArgumentsDelta | SignatureDelta | PartFinished


@dataclass(frozen=True, slots=True)
class Delta:
    """A message grew. Has no sequence."""

    message_id: str
    part_index: int
    run_id: str
    body: DeltaBody
    subagent_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelAttemptFailed:
    """A model call failed and goes on: again, or with another model. For developers."""

    model: str
    attempt: int
    error: RunError


DebugBody = ModelAttemptFailed
"""What only readers see that ask for it. Has no sequence."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent at one moment, as GetAgent and snapshots show it."""

    agent_id: str
    conversation_id: str
    profile: str
    status: AgentStatus
    live: bool
    run_id: str = ""
    todos: tuple[Todo, ...] = ()
    title: str = ""
    held_messages: int = 0
    error: RunError | None = None
    pause_reason: str = ""
    owner_epoch: int = 0
    last_activity_time: datetime | None = None
    viewers: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent as it is now, for a reader that begins."""

    agent: AgentView
    growing_messages: tuple[Message, ...] = ()
    calls: tuple[ToolCallUpdated, ...] = ()
    held_messages: tuple[Message, ...] = ()
    runs: tuple[Run, ...] = ()
    last_position: int = 0
    last_change: int = 0
