"""Those who watch the live agents of a scope. Each has a set of agents to look at anew, and no queue.

What happens to an agent between two looks of a watcher is one change to it: a slow one costs nothing and
sees the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

from sagentry.server.domain.events import StreamEndReason
from sagentry.server.domain.runs import StopReason
from sagentry.server.domain.scope import AgentKey, ScopeKey
from sagentry.server.domain.watching import AgentGone, AgentSummary, WatchBatch

MOST_IN_BATCH = 200
"""Agents of one response: some 100 KB."""

BOOKMARK_INTERVAL = timedelta(seconds=15)

Show = Callable[[AgentKey], AgentSummary | None]
"""Shows a live agent as it is now; None if it is not live."""


class Watcher:
    """One watcher; see the port `WatchSource`."""

    def __init__(
        self, keys: Iterable[AgentKey], show: Show, leave: Callable[[Watcher], None]
    ) -> None:
        self._show = show
        self._leave = leave
        # In order of the changes; a reason only for one that has stopped.
        self._changed: dict[AgentKey, StopReason] = dict.fromkeys(keys, StopReason.FAULT)
        self._known: set[AgentKey] = set()
        self._wake = asyncio.Event()
        self._wake.set()
        self._is_caught_up = False
        self._end: StreamEndReason | None = None
        self._has_ended = False

    def touch(self, key: AgentKey, reason: StopReason) -> None:
        """Has the watcher look at an agent anew."""
        self._changed[key] = reason
        self._wake.set()

    def end(self, reason: StreamEndReason) -> None:
        """Ends the stream, after what has not been shown yet."""
        self._end = reason
        self._wake.set()

    async def next_batch(self) -> WatchBatch | None:
        """Returns what is new, waiting for it; an empty batch after a while of nothing."""
        while not self._has_ended:
            try:
                async with asyncio.timeout(BOOKMARK_INTERVAL.total_seconds()):
                    await self._wake.wait()
            except TimeoutError:
                return WatchBatch()
            batch = self._take()
            if batch is not None:
                return batch
        return None

    def close(self) -> None:
        """Leaves. Safe to repeat."""
        self._leave(self)

    def _take(self) -> WatchBatch | None:
        items: list[AgentSummary | AgentGone] = []
        while self._changed and len(items) < MOST_IN_BATCH:
            key = next(iter(self._changed))
            item = self._look_at(key, self._changed.pop(key))
            if item is not None:
                items.append(item)
        if self._changed:
            return WatchBatch(tuple(items))
        self._wake.clear()
        catches_up = not self._is_caught_up
        self._is_caught_up = True
        self._has_ended = self._end is not None
        if items or catches_up or self._has_ended:
            return WatchBatch(tuple(items), catches_up, self._end)
        return None

    def _look_at(self, key: AgentKey, reason: StopReason) -> AgentSummary | AgentGone | None:
        summary = self._show(key)
        if summary is not None:
            self._known.add(key)
            return summary
        if key not in self._known:
            # It came and went between two looks.
            return None
        self._known.discard(key)
        return AgentGone(key.agent_id, reason)


class Watchers:
    """All watchers, by scope."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._by_scope: dict[ScopeKey, set[Watcher]] = {}

    def open(self, scope: ScopeKey, keys: Iterable[AgentKey]) -> Watcher:
        """Begins to watch the agents of a scope; `keys` are those that are live."""
        watchers = self._by_scope.setdefault(scope, set())

        def leave(watcher: Watcher) -> None:
            watchers.discard(watcher)
            if not watchers:
                self._by_scope.pop(scope, None)

        opened = Watcher(sorted(keys, key=lambda key: key.agent_id), self._show, leave)
        watchers.add(opened)
        return opened

    def touch(self, key: AgentKey, reason: StopReason = StopReason.FAULT) -> None:
        """Tells the watchers of an agent's scope that something about it changed."""
        for watcher in self._by_scope.get(key.scope, ()):
            watcher.touch(key, reason)

    def end_all(self, reason: StreamEndReason) -> None:
        """Ends all streams."""
        for watchers in list(self._by_scope.values()):
            for watcher in list(watchers):
                watcher.end(reason)
