"""What a list of live agents shows, and how it changes."""

from __future__ import annotations

from dataclasses import dataclass

from sagentry.server.domain.events import StreamEndReason
from sagentry.server.domain.runs import AgentStatus, StopReason


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """A live agent in a list.

    Attributes:
        agent_id: The agent.
        conversation_id: Its conversation.
        status: What it does.
        run_id: The run under way; empty for none.
        title: Title of the conversation; empty for none.
        last_change: Change of the newest row that the server knows of.
        open_items: How many items wait for people.
        viewers: Who looks at it, sorted.
    """

    agent_id: str
    conversation_id: str
    status: AgentStatus
    run_id: str = ""
    title: str = ""
    last_change: int = 0
    open_items: int = 0
    viewers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentGone:
    """An agent that is no longer live."""

    agent_id: str
    reason: StopReason


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """What is new to a watcher. Without agents and without an end it says that nothing is.

    Attributes:
        agents: Agents that are new or changed, and those that are gone.
        caught_up: Whether all live agents have been shown.
        end: Why the stream ends here; None while it goes on.
    """

    agents: tuple[AgentSummary | AgentGone, ...] = ()
    caught_up: bool = False
    end: StreamEndReason | None = None
