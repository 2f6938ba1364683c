"""Puts an agent to sleep that nobody uses. Source: spec §1.17 and §1.18, without their faults.

An agent never sleeps in the middle of something: not during a run however long it takes, not while a command
is accepted, and not while a store is away, because it could not be woken then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sagentry.server.agent.agent import Agent
from sagentry.server.domain.runs import AgentStatus, StopReason
from sagentry.server.ports import Clock

NEVER = timedelta(0)


@dataclass(frozen=True, slots=True)
class NapRules:
    """When an agent sleeps by itself.

    Attributes:
        inactivity: How long after the last command or run. `NEVER` switches it off.
        unwatched: How long after that nobody has looked at it, if its last run was completed. `NEVER`
            switches it off.
    """

    inactivity: timedelta = NEVER
    unwatched: timedelta = NEVER


class NapTimer:
    """Watches one agent and looks again at what may have changed before it acts.

    Args:
        agent: The agent.
        rules: When it sleeps.
        clock: The time.
        is_watched: Whether somebody looks at it now.
        sleep: Stops the agent, whose door is closed by then.
    """

    def __init__(
        self,
        agent: Agent,
        rules: NapRules,
        clock: Clock,
        *,
        is_watched: Callable[[], bool],
        sleep: Callable[[StopReason], None],
    ) -> None:
        """Begins to watch."""
        self._agent = agent
        self._rules = rules
        self._clock = clock
        self._is_watched = is_watched
        self._sleep = sleep
        self._watched_at = clock.monotonic()
        self._cancel: Callable[[], None] | None = None
        self._wait(_shortest(rules))

    def cancel(self) -> None:
        """Watches no more. Safe to repeat."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _wait(self, delay: timedelta) -> None:
        if delay > NEVER:
            self._cancel = self._clock.call_later(delay, self._look)

    def _look(self) -> None:
        self._cancel = None
        if self._is_watched():
            self._watched_at = self._clock.monotonic()
        left, reason = self._next()
        if left > NEVER:
            self._wait(left)
        elif self._agent.try_to_rest():
            self._sleep(reason)
        else:
            self._wait(_shortest(self._rules))

    def _next(self) -> tuple[timedelta, StopReason]:
        """Returns which rule applies next, and in how long; 0 or less is now."""
        now, active_at = self._clock.monotonic(), self._agent.active_at
        found: list[tuple[timedelta, StopReason]] = []
        if self._rules.inactivity > NEVER:
            left = self._rules.inactivity - timedelta(seconds=now - active_at)
            found.append((left, StopReason.INACTIVITY))
        if self._rules.unwatched > NEVER:
            since = max(active_at, self._watched_at)
            left = self._rules.unwatched - timedelta(seconds=now - since)
            if self._agent.status is not AgentStatus.IDLE:
                left = self._rules.unwatched
            found.append((left, StopReason.NO_VIEWERS))
        return min(found, key=lambda one: one[0])


def _shortest(rules: NapRules) -> timedelta:
    return min(
        (rule for rule in (rules.inactivity, rules.unwatched) if rule > NEVER), default=NEVER
    )
