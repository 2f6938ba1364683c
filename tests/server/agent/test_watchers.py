"""Watchers of live agents: each sees the newest, and a slow one costs nothing."""

from __future__ import annotations

import pytest

from sagentry.server.agent.watchers import MOST_IN_BATCH, Watchers
from sagentry.server.domain.events import StreamEndReason
from sagentry.server.domain.runs import AgentStatus, StopReason
from sagentry.server.domain.scope import AgentKey, ScopeKey, ScopeKind
from sagentry.server.domain.watching import AgentGone, AgentSummary, WatchBatch

pytestmark = pytest.mark.anyio

SCOPE = ScopeKey(ScopeKind.SCOPED, "acme")


class Agents:
    """Live agents, and those who watch them."""

    def __init__(self, *names: str) -> None:
        self.live: dict[AgentKey, AgentSummary] = {}
        self.watchers = Watchers(self.live.get)
        for name in names:
            self.change(name)

    def change(self, name: str, **facts: object) -> None:
        key = AgentKey(SCOPE, name)
        self.live[key] = AgentSummary(name, name, AgentStatus.IDLE, **facts)  # type: ignore[arg-type]
        self.watchers.touch(key)

    def stop(self, name: str) -> None:
        key = AgentKey(SCOPE, name)
        del self.live[key]
        self.watchers.touch(key, StopReason.REQUESTED)


def names(batch: WatchBatch | None) -> list[str]:
    assert batch is not None
    return [one.agent_id for one in batch.agents]


async def test_what_happens_between_two_looks_is_one_change() -> None:
    agents = Agents("a")
    watcher = agents.watchers.open(SCOPE, agents.live)
    await watcher.next_batch()
    for change in range(1000):
        agents.change("a", last_change=change)

    batch = await watcher.next_batch()

    assert batch is not None
    assert [one.last_change for one in batch.agents if isinstance(one, AgentSummary)] == [999]


async def test_an_agent_that_came_and_went_between_two_looks_was_never_there() -> None:
    agents = Agents("a")
    watcher = agents.watchers.open(SCOPE, agents.live)
    await watcher.next_batch()
    agents.change("b")
    agents.stop("b")
    agents.stop("a")

    batch = await watcher.next_batch()

    assert batch is not None
    assert batch.agents == (AgentGone("a", StopReason.REQUESTED),)


async def test_many_agents_come_in_pieces_and_caught_up_behind_the_last() -> None:
    agents = Agents(*(f"a{n:04}" for n in range(MOST_IN_BATCH + 1)))
    watcher = agents.watchers.open(SCOPE, agents.live)

    first, second = await watcher.next_batch(), await watcher.next_batch()

    assert first is not None
    assert second is not None
    assert (first.caught_up, second.caught_up) == (False, True)
    assert names(first) + names(second) == sorted(key.agent_id for key in agents.live)


async def test_the_end_comes_behind_what_was_not_shown_yet() -> None:
    agents = Agents("a")
    watcher = agents.watchers.open(SCOPE, agents.live)
    agents.watchers.end_all(StreamEndReason.DRAINING)

    assert await watcher.next_batch() == WatchBatch(
        (AgentSummary("a", "a", AgentStatus.IDLE),),
        caught_up=True,
        end=StreamEndReason.DRAINING,
    )
    assert await watcher.next_batch() is None


async def test_one_who_has_left_is_told_nothing_and_leaves_nothing() -> None:
    agents = Agents("a")
    watcher = agents.watchers.open(SCOPE, agents.live)
    watcher.close()
    watcher.close()
    agents.change("a")

    assert agents.watchers._by_scope == {}  # noqa: SLF001 - memory is what it is about
