"""What clients ask of agents and what they are answered, in domain terms."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta

from sagentry.server.domain.display import DisplayMessage, ListOrder
from sagentry.server.domain.events import AgentView, EventKind, LagPolicy
from sagentry.server.domain.messages import Message
from sagentry.server.domain.runs import AgentStatus, Run, RunPhase
from sagentry.server.domain.scope import Scope
from sagentry.server.domain.state import StartOptions


class DisplayChoice(enum.Enum):
    """What people see of a message when the caller decides it."""

    SAME = "same"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How a client wants an agent to be started.

    Attributes:
        conversation_id: Storage identity; empty means the agent_id.
        options: What is stored in the state.
        ephemeral_tool_context_json: Tool context that is kept in memory only; empty for none.
    """

    conversation_id: str = ""
    options: StartOptions = StartOptions()
    ephemeral_tool_context_json: str = ""


@dataclass(frozen=True, slots=True)
class StartAgent:
    """Start an agent, or find it live. `options` None: whatever is stored, or the defaults."""

    scope: Scope
    agent_id: str
    request_id: str = ""
    options: AgentOptions | None = None


@dataclass(frozen=True, slots=True)
class StartAgentReply:
    """The agent, and what came of the call."""

    agent: AgentView
    started: bool
    options_applied: bool
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ListAgents:
    """List live agents of a scope; `after` is the agent_id that the page begins after."""

    scope: Scope
    page_size: int
    after: str = ""
    statuses: tuple[AgentStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentPage:
    """A page of live agents, by agent_id."""

    agents: tuple[AgentView, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class StopAgent:
    """Put an agent to sleep; `timeout` is what the caller has left."""

    scope: Scope
    agent_id: str
    finish_run: bool = False
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StopAgentReply:
    """Whether it was live, and how many of its writes are not stored yet."""

    stopped: bool
    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class AddMessage:
    """Give an agent a message.

    Attributes:
        scope: Who the call is for.
        agent_id: The agent.
        request_id: Identity of the call.
        message: The message; its message_id and create_time are placeholders.
        display: What people see; None lets the preprocessor decide.
        options: Used only if nothing is stored of the agent.
        hold: Accept without beginning a run.
        timeout: What the caller has left; None for no deadline.
    """

    scope: Scope
    agent_id: str
    request_id: str
    message: Message
    display: Message | DisplayChoice | None = None
    options: AgentOptions | None = None
    hold: bool = False
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AddMessageReply:
    """What came of a message.

    Attributes:
        message_id: Identity of the message.
        run_id: The run that gives it to the model; empty when it is held without one.
        queued: Whether it waits for the next run boundary.
        rows: Its rows, as far as they are saved.
        unsaved: How many of its writes are not stored yet.
        replayed: Whether this answer was given before.
    """

    message_id: str
    run_id: str
    queued: bool
    rows: tuple[DisplayMessage, ...] = ()
    unsaved: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class StartRun:
    """Begin a run without a new message."""

    scope: Scope
    agent_id: str
    request_id: str
    options: AgentOptions | None = None
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StartRunReply:
    """The run."""

    run_id: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class GetRun:
    """Read a run; wait for its end at most `wait`."""

    scope: Scope
    agent_id: str
    run_id: str
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class RunReply:
    """A run, where it is, and its last message once it has ended."""

    run: Run
    phase: RunPhase
    final_message: Message | None = None


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Cancel a run; an empty run_id means the one under way."""

    scope: Scope
    agent_id: str
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class CancelRunReply:
    """What came of a cancel."""

    already_ended: bool
    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class PauseRun:
    """Pause a run after the step that it is at; an empty run_id means the one under way."""

    scope: Scope
    agent_id: str
    request_id: str
    run_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseRunReply:
    """What came of a pause."""

    already_ended: bool
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ResumeAgent:
    """Go on with a paused run."""

    scope: Scope
    agent_id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class ResumeAgentReply:
    """What came of it."""

    run_id: str
    unsaved: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class StateReply:
    """The state of an agent, as JSON text."""

    state_json: str
    schema_version: int
    revision: int


@dataclass(frozen=True, slots=True)
class ListRows:
    """List rows of a conversation."""

    scope: Scope
    conversation_id: str
    order: ListOrder
    after: int | None
    page_size: int
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class SubscribeEvents:
    """Follow an agent.

    Attributes:
        scope: Who the call is for.
        agent_id: The agent.
        cursor: Where to go on; None begins with a snapshot.
        kinds: Only events of these kinds; empty means all but debug.
        debug: Whether debug events are wanted as well.
        policy: What happens when the reader falls behind.
        viewer_id: Who looks at the stream; empty for nobody.
        wake: Whether to wake the agent if it sleeps.
    """

    scope: Scope
    agent_id: str
    cursor: str | None = None
    kinds: frozenset[EventKind] = frozenset()
    debug: bool = False
    policy: LagPolicy = LagPolicy.CONFLATE
    viewer_id: str = ""
    wake: bool = False
