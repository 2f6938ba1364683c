"""The end of the server: what asks for it, how long it may take, and that it is ordered."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

MINIMUM_BUDGET = timedelta(seconds=1)
"""What a drain gets at least: enough for answers under way, that of DrainServer included."""

logger = logging.getLogger(__name__)


class Drain:
    """Whether the server is ending, and when it must have ended.

    `begin` may be called from any task and from signal handlers of the loop; it never blocks.
    """

    def __init__(self, budget: timedelta) -> None:
        """Sets how long the drain may take unless `begin` is told otherwise."""
        self._budget = budget
        self._end: float | None = None
        self._begun = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether the server is ending."""
        return self._begun.is_set()

    def begin(self, budget: timedelta | None = None) -> datetime:
        """Begins the drain, or shortens it when it has begun; it is never made longer.

        Returns:
            When the server ends at the latest.
        """
        loop = asyncio.get_running_loop()
        wanted = max(self._budget if budget is None else budget, MINIMUM_BUDGET)
        end = loop.time() + wanted.total_seconds()
        if self._end is None or end < self._end:
            self._end = end
            self._changed.set()
        self._begun.set()
        return datetime.now(UTC) + timedelta(seconds=self.remaining_seconds())

    async def wait_begun(self) -> None:
        """Returns when the drain begins."""
        await self._begun.wait()

    def remaining_seconds(self) -> float:
        """Returns how much of the budget is left, 0 or more; all of it before the drain begins."""
        if self._end is None:
            return self._budget.total_seconds()
        return max(0.0, self._end - asyncio.get_running_loop().time())

    async def wait_expired(self) -> None:
        """Returns when the budget is used up; a budget that is shortened meanwhile counts."""
        while (left := self.remaining_seconds()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def finish(self, work: Awaitable[None]) -> bool:
        """Waits for work, at most until the budget is used up; then the work is cancelled.

        Returns:
            Whether the work was done in time.

        Raises:
            Exception: The work's own.
        """
        done = False

        async def run() -> None:
            nonlocal done
            await work
            done = True
            timer.cancel()

        async def expire() -> None:
            await self.wait_expired()
            working.cancel()

        try:
            async with asyncio.TaskGroup() as tasks:
                timer = tasks.create_task(expire())
                working = tasks.create_task(run())
        except ExceptionGroup as group:
            # Only the work can fail.
            raise group.exceptions[0] from None
        return done


@contextmanager
def drain_on_signals(drain: Drain) -> Iterator[None]:
    """Lets SIGTERM and SIGINT begin the drain, and a second one cut it short.

    Only for the main thread of a process that the server has to itself.
    """
    loop = asyncio.get_running_loop()

    def receive(received: signal.Signals) -> None:
        logger.info("signal received", extra={"signal": received.name})
        drain.begin(MINIMUM_BUDGET if drain.has_begun else None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
