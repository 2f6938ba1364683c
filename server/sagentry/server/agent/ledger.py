"""The agent's one way to change its state: recorded first, then applied.

`AgentState` always equals what the journal and the store hold together, because a change is applied when
its record is on disk and not before. What could not be recorded has not happened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sagentry.server.domain import codec
from sagentry.server.domain.scope import ConversationKey
from sagentry.server.domain.state import AgentState, Change, Patch
from sagentry.server.ports import Journal, JournalRecord, WriteRequest

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
        self._journal = journal
        self._conversation = conversation
        self._agent_id = agent_id
        self._state = state
        self._epoch = epoch
        self._on_writes = on_writes
        self._next_revision = state.revision + 1

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
        something keeps them off the disk the future fails with it and nothing has changed.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        records: list[JournalRecord] = []
        patch: Patch | None = None
        if changes or is_bump:
            patch = Patch(self._next_revision, tuple(changes))
            self._next_revision += 1
            records.append(self._record(PATCH, codec.to_json(patch, Patch), patch.revision))
        records.extend(
            self._record(DISPLAY, codec.to_json(write, WriteRequest)) for write in writes
        )
        if not records:
            if then is not None:
                then()
            done.set_result(None)
            return done

        def on_durable(entry_ids: Sequence[int], error: Exception | None) -> None:
            if error is not None:
                _resolve(done, error)
                return
            self._applied(patch, records, list(writes), entry_ids, then)
            _resolve(done, None)

        self._journal.append(self._conversation, self._agent_id, records, on_durable=on_durable)
        return done

    async def bump(self) -> None:
        """Raises the revision without a change, for a write that must be newer than the last one."""
        await self.record([], is_bump=True)

    def post(self, changes: Sequence[Change]) -> None:
        """Records changes without waiting. What keeps them off the disk, the next record will meet."""
        recorded = self.record(changes)
        del recorded

    def acknowledge_state(self, revision: int) -> None:
        """Forgets the patches that a store has as of `revision`."""
        entries = []
        while self.unsaved and self.unsaved[0].patch.revision <= revision:
            entries.append(self.unsaved.popleft().entry_id)
        if entries:
            self._journal.remove(entries)

    def _record(self, kind: str, payload: str, revision: int = 0) -> JournalRecord:
        return JournalRecord(kind=kind, epoch=self._epoch, revision=revision, payload=payload)

    def _applied(
        self,
        patch: Patch | None,
        records: Sequence[JournalRecord],
        writes: Sequence[WriteRequest],
        entry_ids: Sequence[int],
        then: Callable[[], None] | None,
    ) -> None:
        rest = list(entry_ids)
        if patch is not None:
            self._state.apply(patch)
            size = len(records[0].payload)
            self.unsaved.append(RecordedPatch(rest.pop(0), patch, size))
        if then is not None:
            then()
        if writes:
            self._on_writes(
                [
                    QueuedWrite(entry_id, self._epoch, write)
                    for entry_id, write in zip(rest, writes, strict=True)
                ]
            )


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
        return
    done.set_exception(error)
    # Whoever recorded without waiting learns of a full disk at its next record; asyncio need not warn.
    done.exception()
