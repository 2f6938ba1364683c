"""Agents and runs, as clients see them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from sagentry.server.domain.messages import TokenUsage


class AgentStatus(enum.Enum):
    """What an agent does."""

    IDLE = "idle"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    ERROR = "error"
    ASLEEP = "asleep"
    ABSENT = "absent"


class RunPhase(enum.Enum):
    """Where a run is."""

    MODEL = "model"
    TOOLS = "tools"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    SETTLING = "settling"
    ENDED = "ended"


class RunEnd(enum.Enum):
    """How a run ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    ERROR = "error"
    LOST = "lost"


class StopReason(enum.Enum):
    """Why an agent is no longer live."""

    REQUESTED = "requested"
    INACTIVITY = "inactivity"
    NO_VIEWERS = "no_viewers"
    DRAINING = "draining"
    FENCED = "fenced"
    DELETED = "deleted"
    FAULT = "fault"


class Lifecycle(enum.Enum):
    """What a state is saved for."""

    ON_COMPLETION = "on_completion"
    ON_CANCEL = "on_cancel"
    ON_ERROR = "on_error"
    ON_INTERRUPT = "on_interrupt"
    ON_TITLE_GENERATED = "on_title_generated"
    ON_SHUTDOWN = "on_shutdown"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed.

    Attributes:
        reason: A word for programs, for example `MODEL_OVERLOADED`.
        message: In words for people.
        retryable: Whether the same run might succeed later.
    """

    reason: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an agent.

    Attributes:
        run_id: Identity of the run.
        start_time: When it was accepted.
        begun: Whether it has made its first model call; a run that has not can be begun again.
        turns: How many model calls it made.
        end: How it ended; None while it is under way.
        error: Why it failed.
        usage: Tokens of all its model calls.
        end_time: When it ended.
        unsaved: Writes not stored yet when the end was announced.
        final_message_id: Its last assistant message; empty for none.
    """

    run_id: str
    start_time: datetime
    begun: bool = False
    turns: int = 0
    end: RunEnd | None = None
    error: RunError | None = None
    usage: TokenUsage = TokenUsage()
    end_time: datetime | None = None
    unsaved: int = 0
    final_message_id: str = ""
