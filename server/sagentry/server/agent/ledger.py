"""The agent's one way to change its state: recorded first, then applied.

`AgentState` always equals what the journal and the store hold together, because a change is applied when
its record is on disk and not before. What could not be recorded has not happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sagentry.server.domain import codec
from sagentry.server.domain.scope import ConversationKey
from sagentry.server.domain.state import AgentState, Change, Patch
from sagentry.server.errors import StaleEpochError
from sagentry.server.ports import Journal, JournalRecord, WriteRequest

logger = logging.getLogger(__name__)

PATCH = "patch"
DISPLAY = "display"


@dataclass(frozen=True, slots=True)
class RecordedPatch:
    """A patch that is on disk and not yet acknowledged by the store."""

    entry_id: int
    patch: Patch
    size: int


@dataclass(frozen=True, slots=True)
class QueuedWrite:
    """A display write that is on disk and not yet acknowledged by its store."""

    entry_id: int
    epoch: int
    request: WriteRequest


class Ledger:
    """Records changes and writes of one agent.

    Args:
        journal: The server's journal.
        conversation: What the records belong to.
        agent_id: The agent, for whoever reads the journal after a crash.
        state: The state that recorded changes are applied to.
        epoch: Epoch of ownership.
        on_writes: Given the display writes of each record, in order, once they are on disk.
    """

    def __init__(
        self,
        journal: Journal,
        conversation: ConversationKey,
        agent_id: str,
        state: AgentState,
        *,
        epoch: int,
        on_writes: Callable[[Sequence[QueuedWrite]], None],
    ) -> None:
        """Begins at the state's revision."""
        self.unsaved: deque[RecordedPatch] = deque()
        self.unsaved_size = 0
        """Size of the unsaved patches in characters."""
        self._journal = journal
        self._conversation = conversation
        self._agent_id = agent_id
        self._state = state
        self._epoch = epoch
        self._on_writes = on_writes
        self._next_revision = state.revision + 1
        self._last: asyncio.Future[None] | None = None
        self._closed: StaleEpochError | None = None

    def record(
        self,
        changes: Sequence[Change],
        writes: Sequence[WriteRequest] = (),
        then: Callable[[], None] | None = None,
        *,
        is_bump: bool = False,
    ) -> asyncio.Future[None]:
        """Records changes and writes as one: after a crash all of them are there or none.

        Returns at once. When they are on disk the changes are applied, `then` is called (to tell readers),
        the writes are handed on, and the future is done, in this order and in the order of the calls. When
        something keeps them off the disk the future fails with it and nothing has changed. Raises nothing.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last = done
        try:
            self._append(done, changes, writes, then, is_bump=is_bump)
        except Exception as error:  # noqa: BLE001 - handed to who waits
            _resolve(done, error)
        return done

    def _append(
        self,
        done: asyncio.Future[None],
        changes: Sequence[Change],
        writes: Sequence[WriteRequest],
        then: Callable[[], None] | None,
        *,
        is_bump: bool,
    ) -> None:
        if self._closed is not None:
            raise self._closed
        records: list[JournalRecord] = []
        patch: Patch | None = None
        if changes or is_bump:
            patch = Patch(self._next_revision, tuple(changes))
            records.append(self._record(PATCH, codec.to_json(patch, Patch), patch.revision))
        records.extend(
            self._record(DISPLAY, codec.to_json(write, WriteRequest)) for write in writes
        )
        if not records:
            if then is not None:
                then()
            done.set_result(None)
            return

        def on_durable(entry_ids: Sequence[int], error: Exception | None) -> None:
            if error is None:
                error = self._durable(patch, records, list(writes), entry_ids, then)
            _resolve(done, error)

        self._journal.append(self._conversation, self._agent_id, records, on_durable=on_durable)
        if patch is not None:
            self._next_revision += 1

    async def bump(self) -> None:
        """Raises the revision without a change, for a write that must be newer than the last one."""
        await self.record([], is_bump=True)

    async def settled(self) -> None:
        """Returns when everything that was recorded so far is on disk and applied, or refused."""
        if self._last is not None:
            await asyncio.wait({self._last})

    def restore(self, patches: Sequence[RecordedPatch]) -> None:
        """Takes patches of an earlier life that the store has not."""
        self.unsaved.extend(patches)
        self.unsaved_size += sum(recorded.size for recorded in patches)

    def acknowledge_state(self, revision: int) -> None:
        """Forgets the patches that a store has as of `revision`."""
        entries = []
        while self.unsaved and self.unsaved[0].patch.revision <= revision:
            recorded = self.unsaved.popleft()
            self.unsaved_size -= recorded.size
            entries.append(recorded.entry_id)
        if entries:
            self._journal.remove(entries)

    def close(self, error: StaleEpochError, waiting: Sequence[int]) -> None:
        """Records nothing more: the conversation is another server's.

        What is recorded and not stored, here and `waiting`, is set aside, what is on its way too.
        """
        self._closed = error
        entries = [*(recorded.entry_id for recorded in self.unsaved), *waiting]
        self.unsaved.clear()
        self.unsaved_size = 0
        self._journal.set_aside(entries, error.reason)

    def _record(self, kind: str, payload: str, revision: int = 0) -> JournalRecord:
        return JournalRecord(kind=kind, epoch=self._epoch, revision=revision, payload=payload)

    def _durable(
        self,
        patch: Patch | None,
        records: Sequence[JournalRecord],
        writes: Sequence[WriteRequest],
        entry_ids: Sequence[int],
        then: Callable[[], None] | None,
    ) -> Exception | None:
        """Applies and tells what is on disk; returns what kept it from that."""
        if self._closed is not None:
            self._journal.set_aside(entry_ids, self._closed.reason)
            return self._closed
        rest = list(entry_ids)
        try:
            if patch is not None:
                self._state.apply(patch)
                size = len(records[0].payload)
                self.unsaved.append(RecordedPatch(rest.pop(0), patch, size))
                self.unsaved_size += size
        except Exception as fault:
            # No later start could fold it either: it has not happened.
            logger.exception("a recorded change does not fit the state")
            self._journal.set_aside(entry_ids, "STATE_CORRUPT")
            return fault
        if then is not None:
            try:
                then()
            except Exception:
                # It has happened all the same.
                logger.exception("readers could not be told of a record")
        if writes:
            self._on_writes(
                [
                    QueuedWrite(entry_id, self._epoch, write)
                    for entry_id, write in zip(rest, writes, strict=True)
                ]
            )
        return None


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
        return
    done.set_exception(error)
    # Nobody may be waiting, and asyncio need not warn of that.
    done.exception()
