"""The status of an agent in a few words."""

from __future__ import annotations

from sagentry.api.agent.v1 import agent_pb2
from sagentry.cli.safe_text import safe_line
from sagentry.client import AgentView, Disconnected, RowsDelayed

_STATUSES = {
    agent_pb2.AGENT_STATUS_IDLE: "ready",
    agent_pb2.AGENT_STATUS_RUNNING: "running",
    agent_pb2.AGENT_STATUS_INTERRUPTED: "waits for people",
    agent_pb2.AGENT_STATUS_PAUSED: "paused",
    agent_pb2.AGENT_STATUS_CANCELLED: "cancelled",
    agent_pb2.AGENT_STATUS_ERROR: "failed",
    agent_pb2.AGENT_STATUS_ASLEEP: "asleep",
    agent_pb2.AGENT_STATUS_ABSENT: "new",
}


def status_word(agent: agent_pb2.Agent) -> str:
    """Returns what an agent does, in a word."""
    return _STATUSES.get(agent.status, "unknown")


def status_words(view: AgentView) -> list[str]:
    """Returns what is worth knowing about an agent, most important first."""
    agent = view.agent
    words = [status_word(agent)]
    if agent.status == agent_pb2.AGENT_STATUS_ERROR and agent.HasField("error"):
        words.append(safe_line(f"{agent.error.reason}: {agent.error.message}"))
    if view.held:
        words.append(f"{len(view.held)} held")
    ended = [run for run in view.runs.values() if run.phase == agent_pb2.RUN_PHASE_ENDED]
    if ended:
        usage = ended[-1].usage
        if usage.HasField("input_tokens") or usage.HasField("output_tokens"):
            words.append(f"{usage.input_tokens} tokens in, {usage.output_tokens} out")
        if ended[-1].unsaved:
            words.append(f"{ended[-1].unsaved} not stored yet")
    if agent.title:
        words.append(safe_line(agent.title))
    return words


class ConnectionState:
    """Whether what a follower shows is fresh."""

    def __init__(self) -> None:
        self._problem = "connecting"

    def see(self, item: object) -> None:
        """Takes notice of what a follower yields."""
        match item:
            case Disconnected(attempt=attempt):
                self._problem = f"no connection, attempt {attempt}"
            case RowsDelayed():
                self._problem = "the transcript cannot be read now"
            case _:
                self._problem = ""

    def line(self, view: AgentView) -> str:
        """Returns the status of an agent, or why it is not known, as one line."""
        if self._problem:
            words = [self._problem]
        elif not view.is_complete:
            words = [f"reading the transcript, {len(view.rows)} rows"]
        else:
            words = status_words(view)
        return (
            " · ".join([safe_line(view.agent.agent_id), *words])
            if view.agent.agent_id
            else words[0]
        )
