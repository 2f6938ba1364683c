"""The logs of agents, live or not: a reader follows an agent across its starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sagentry.server.agent.agent import Agent
from sagentry.server.agent.watchers import Watchers
from sagentry.server.domain.commands import SubscribeEvents
from sagentry.server.domain.events import AgentView, Snapshot, StreamEndReason
from sagentry.server.domain.runs import AgentStatus
from sagentry.server.domain.scope import AgentKey, ScopeKey
from sagentry.server.domain.watching import AgentSummary
from sagentry.server.stream_ports import AgentLog, EventSource, WatchSource

SPARE_LOGS = 64
"""Logs that nobody uses may stay until there are so many of them; then they are dropped."""


@dataclass(slots=True)
class _Channel:
    log: AgentLog
    agent: Agent | None
    resting: Snapshot
    """What is shown while the agent is not live."""
    viewers: Counter[str] = field(default_factory=Counter)
    """How many streams each viewer has open."""

    def snapshot(self) -> Snapshot:
        shown = self.agent.snapshot() if self.agent is not None else self.resting
        return replace(shown, agent=replace(shown.agent, viewers=len(self.viewers)))

    @property
    def is_unused(self) -> bool:
        return self.agent is None and self.log.readers == 0


class _Viewed:
    """A stream that somebody looks at."""

    def __init__(self, source: EventSource, leave: Callable[[], None]) -> None:
        self._source = source
        self._leave: Callable[[], None] | None = leave

    async def next_batch(self) -> bytes | None:
        return await self._source.next_batch()

    def close(self) -> None:
        self._source.close()
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave()


class Streams:
    """Keeps a log per agent for as long as the agent is live or somebody follows it.

    Args:
        make_log: Makes the log of an agent: (agent_id, conversation_id).
    """

    def __init__(self, make_log: Callable[[str, str], AgentLog]) -> None:
        """Begins without logs."""
        self._make_log = make_log
        self._channels: dict[AgentKey, _Channel] = {}
        self._watchers = Watchers(self._summary)

    def log(self, key: AgentKey, conversation_id: str) -> AgentLog:
        """Returns the log of an agent that starts."""
        log = self._channel(key).log
        log.conversation_id = conversation_id
        return log

    def attach(self, key: AgentKey, agent: Agent) -> None:
        """Begins the log anew: the agent is live."""
        channel = self._channel(key)
        channel.agent = agent
        channel.log.begin(channel.snapshot)
        self._watchers.touch(key)

    def detach(self, key: AgentKey) -> None:
        """Shows the agent asleep from now on."""
        channel = self._channels.get(key)
        if channel is not None and channel.agent is not None:
            channel.resting = _asleep(channel.agent.snapshot())
            reason = channel.agent.stop_reason
            channel.agent = None
            self._watchers.touch(key, reason)
            self._drop_unused()

    def end(self, key: AgentKey, reason: StreamEndReason, *, reconnect: bool) -> None:
        """Ends the agent's streams."""
        channel = self._channels.pop(key, None)
        if channel is not None:
            channel.log.end(reason, reconnect=reconnect)

    def end_all(self, reason: StreamEndReason, *, reconnect: bool) -> None:
        """Ends all streams."""
        for key in list(self._channels):
            self.end(key, reason, reconnect=reconnect)
        self._watchers.end_all(reason)

    def happened(self, key: AgentKey) -> None:
        """Tells those who watch lists that something about a live agent changed."""
        self._watchers.touch(key)

    def watch(self, scope: ScopeKey) -> WatchSource:
        """Begins to watch the live agents of a scope."""
        live = [
            key
            for key, channel in self._channels.items()
            if key.scope == scope and channel.agent is not None
        ]
        return self._watchers.open(scope, live)

    def readers(self, key: AgentKey) -> int:
        """Returns how many streams of an agent are open."""
        channel = self._channels.get(key)
        return channel.log.readers if channel is not None else 0

    def viewers(self, key: AgentKey) -> tuple[str, ...]:
        """Returns who looks at an agent, each once, sorted."""
        channel = self._channels.get(key)
        return tuple(sorted(channel.viewers)) if channel is not None else ()

    def _summary(self, key: AgentKey) -> AgentSummary | None:
        channel = self._channels.get(key)
        if channel is None or channel.agent is None:
            return None
        view = channel.agent.view()
        return AgentSummary(
            agent_id=view.agent_id,
            conversation_id=view.conversation_id,
            status=view.status,
            run_id=view.run_id,
            title=view.title,
            last_change=channel.agent.news.counters.last_change,
            viewers=self.viewers(key),
        )

    def subscribe(
        self, key: AgentKey, command: SubscribeEvents, resting: Snapshot | None
    ) -> EventSource:
        """Opens a stream.

        Args:
            key: The agent.
            command: What the reader wants.
            resting: What the store says of an agent that is not live; None leaves what is known.

        Raises:
            InvalidInputError: CURSOR_INVALID.
        """
        channel = self._channel(key)
        if resting is not None:
            channel.resting = resting
        source = channel.log.subscribe(
            command.cursor,
            command.kinds,
            debug=command.debug,
            policy=command.policy,
            snapshot=channel.snapshot,
        )
        if not command.viewer_id:
            return source
        channel.viewers[command.viewer_id] += 1
        self._watchers.touch(key)
        return _Viewed(source, lambda: self._leave(key, channel, command.viewer_id))

    def _leave(self, key: AgentKey, channel: _Channel, viewer_id: str) -> None:
        channel.viewers[viewer_id] -= 1
        if channel.viewers[viewer_id] <= 0:
            del channel.viewers[viewer_id]
        self._watchers.touch(key)

    def _channel(self, key: AgentKey) -> _Channel:
        channel = self._channels.get(key)
        if channel is None:
            self._drop_unused()
            log = self._make_log(key.agent_id, key.agent_id)
            channel = _Channel(log, None, absent_snapshot(key.agent_id))
            self._channels[key] = channel
        return channel

    def _drop_unused(self) -> None:
        unused = [key for key, channel in self._channels.items() if channel.is_unused]
        if len(unused) > SPARE_LOGS:
            for key in unused:
                del self._channels[key]


def absent_snapshot(agent_id: str) -> Snapshot:
    """Shows an agent of which nothing is stored."""
    view = AgentView(
        agent_id=agent_id,
        conversation_id=agent_id,
        profile="",
        status=AgentStatus.ABSENT,
        live=False,
    )
    return Snapshot(view)


def _asleep(snapshot: Snapshot) -> Snapshot:
    view = snapshot.agent
    resting = AgentView(
        agent_id=view.agent_id,
        conversation_id=view.conversation_id,
        profile=view.profile,
        status=AgentStatus.ASLEEP,
        live=False,
        todos=view.todos,
        title=view.title,
        held_messages=view.held_messages,
        error=view.error,
        pause_reason=view.pause_reason,
        owner_epoch=view.owner_epoch,
    )
    return Snapshot(
        agent=resting,
        held_messages=snapshot.held_messages,
        runs=snapshot.runs,
        last_position=snapshot.last_position,
        last_change=snapshot.last_change,
    )
