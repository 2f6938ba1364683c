"""Sends an agent's display writes to its store, in order, and tells what came of them.

The agent never waits for it. What is ready leaves together; one call is under way at a time, so that
outcomes and the events that announce them keep the order of the writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sagentry.server.agent.ledger import QueuedWrite
from sagentry.server.agent.store_link import StoreLink, StoreListener
from sagentry.server.domain.writes import WriteOutcome
from sagentry.server.errors import PartialWriteError, PluginError
from sagentry.server.ports import Clock, DisplayStore, Journal, PluginCall

BATCH = 64
"""Most writes that leave together."""


class PipelineListener(StoreListener, Protocol):
    """What the pipeline tells its agent. All methods return at once."""

    def on_outcome(self, write: QueuedWrite, outcome: WriteOutcome) -> None:
        """A write is stored."""

    def on_rejected(self, write: QueuedWrite, error: PluginError) -> None:
        """A write was refused for good and set aside."""


@dataclass(slots=True)
class _Waiter:
    remaining: set[int]
    done: asyncio.Event


class DisplayPipeline:
    """The display writes of one agent.

    Args:
        store: Where they go.
        journal: Where they wait; told when they are stored.
        call: Makes the context of a call: (request_id, epoch) to PluginCall.
        listener: The agent.
        clock: For pauses.
    """

    def __init__(
        self,
        store: DisplayStore,
        journal: Journal,
        *,
        call: Callable[[str, int], PluginCall],
        listener: PipelineListener,
        clock: Clock,
    ) -> None:
        """Begins empty; `run` must be running for anything to be sent."""
        self._store = store
        self._journal = journal
        self._call = call
        self._listener = listener
        self._queue: deque[QueuedWrite] = deque()
        self._ready = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._is_closed = False
        self._link = StoreLink(store.plugin, listener, clock, release=self._release_all)

    @property
    def is_degraded(self) -> bool:
        """Whether the store fails."""
        return self._link.is_degraded

    @property
    def unsaved(self) -> int:
        """How many writes are not stored yet."""
        return len(self._queue)

    def waiting(self) -> Sequence[QueuedWrite]:
        """Returns the writes that are not stored yet, in order."""
        return tuple(self._queue)

    def enqueue(self, writes: Sequence[QueuedWrite]) -> None:
        """Adds writes at the end."""
        self._queue.extend(writes)
        self._ready.set()

    def close(self) -> None:
        """Sends nothing more and lets go who waits; what is not stored stays in the journal."""
        self._is_closed = True
        self._release_all()

    async def settle(self, timeout: timedelta, request_ids: set[str] | None = None) -> int:
        """Waits until the named writes, or all of now, are stored or set aside, at most `timeout`.

        Returns how many of them are still waiting. While the store is degraded it does not wait at all.
        """
        pending = {
            write.entry_id
            for write in self._queue
            if request_ids is None or write.request.request_id in request_ids
        }
        if not pending or self.is_degraded or self._is_closed:
            return len(pending)
        waiter = _Waiter(pending, asyncio.Event())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout / timedelta(seconds=1)):
                await waiter.done.wait()
        except TimeoutError:
            pass
        finally:
            self._waiters.remove(waiter)
        return len(waiter.remaining)

    async def run(self) -> None:
        """Sends until cancelled or fenced."""
        await self._link.run(self._ready, self.send)

    async def send(self) -> None:
        """Sends what is ready, once; there must be something.

        Raises:
            PluginError: The store failed; the writes wait. StaleEpochError: they can never be sent.
        """
        batch = self._batch()
        call = self._call(batch[0].request.request_id, batch[0].epoch)
        try:
            outcomes = await self._store.apply(call, [write.request for write in batch])
        except PartialWriteError as partial:
            self._stored(partial.outcomes)
            self._refused(partial.failure)
        except PluginError as error:
            self._refused(error)
        except Exception as fault:  # noqa: BLE001 - logged; one write must not end the agent
            self._refused(self._link.own_fault(fault, "ApplyWrites"))
        else:
            self._stored(outcomes)

    def _batch(self) -> list[QueuedWrite]:
        epoch = self._queue[0].epoch
        batch: list[QueuedWrite] = []
        for write in self._queue:
            if write.epoch != epoch or len(batch) == BATCH:
                break
            batch.append(write)
        return batch

    def _stored(self, outcomes: Sequence[WriteOutcome]) -> None:
        for outcome in outcomes:
            write = self._queue.popleft()
            self._journal.remove([write.entry_id])
            self._link.progressed()
            self._listener.on_outcome(write, outcome)
            self._passed(write)

    def _refused(self, error: PluginError) -> None:
        if not self._link.is_final(error):
            raise error
        write = self._queue.popleft()
        self._journal.set_aside([write.entry_id], error.reason)
        self._listener.on_rejected(write, error)
        self._passed(write)

    def _passed(self, write: QueuedWrite) -> None:
        for waiter in self._waiters:
            waiter.remaining.discard(write.entry_id)
            if not waiter.remaining:
                waiter.done.set()
        if not self._queue:
            self._ready.clear()

    def _release_all(self) -> None:
        for waiter in self._waiters:
            waiter.done.set()
