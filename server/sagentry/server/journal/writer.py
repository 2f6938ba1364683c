"""The journal's writer: one thread, and one transaction for whatever is ready.

There is no timer: while a commit waits for the disk the next batch collects, so the batches grow with the
load. What came of a commit is told on the event loop with one wake-up.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sagentry.server.domain.scope import ConversationKey
from sagentry.server.journal import rows
from sagentry.server.ports import JournalRecord

logger = logging.getLogger(__name__)

BATCH = 512
"""Most operations of one transaction."""

ID_BLOCK = 65_536
"""Ids are reserved in blocks of this many, so that a commit rarely writes more than its entries."""


@dataclass(frozen=True, slots=True)
class Append:
    """Records to write together.

    Attributes:
        refused: Why they are not written; then there are none, and the append only keeps its turn.
    """

    conversation: ConversationKey
    agent_id: str
    records: Sequence[JournalRecord]
    first_id: int
    sizes: Sequence[int]
    on_durable: Callable[[Sequence[int], Exception | None], None]
    refused: Exception | None = None

    @property
    def entry_ids(self) -> range:
        """Ids of the records."""
        return range(self.first_id, self.first_id + len(self.records))


@dataclass(frozen=True, slots=True)
class Remove:
    """Entries to remove, or to set aside for a reason."""

    entry_ids: Sequence[int]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Entries that were sent in vain."""

    entry_ids: Sequence[int]
    reason: str


@dataclass(frozen=True, slots=True)
class Barrier:
    """Calls back, on the writer thread, when everything put before it is done.

    Attributes:
        reached: Is given the entries whose removal could not be written.
    """

    reached: Callable[[frozenset[int]], None]


@dataclass(frozen=True, slots=True)
class Close:
    """Ends the writer."""


Write = Append | Remove | Note
Operation = Write | Barrier | Close


@dataclass(frozen=True, slots=True)
class Committed:
    """What came of a transaction: told to the event loop as one.

    Attributes:
        appends: Its appends, in order.
        error: Why nothing of it was kept; None when it was.
        removed: How many entries it removed.
        removed_bytes: Their bytes.
    """

    appends: Sequence[Append] = field(repr=False)
    error: Exception | None = None
    removed: int = 0
    removed_bytes: int = 0


class Writer:
    """Owns the writing connection.

    Args:
        connection: The connection; no transaction is open.
        fsync: Whether appends wait for the disk.
        reserved: Highest id that is noted in the file.
        tell: Called on the event loop with what came of each transaction, in order.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        fsync: bool,
        reserved: int,
        tell: Callable[[Committed], None],
    ) -> None:
        """Starts the thread."""
        self.commits = 0
        self._connection = connection
        self._fsync = fsync
        self._is_synchronous = fsync
        self._reserved = reserved
        self._tell = tell
        self._owed: list[Remove] = []
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sagentry-journal", daemon=True)
        self._thread.start()

    def put(self, operation: Operation) -> None:
        """Hands an operation over; operations are done in this order."""
        self._queue.put(operation)

    def join(self) -> None:
        """Waits until the operations before a `Close` are done. Blocks."""
        self._thread.join()

    def _run(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        """Does what is ready; a function of its own so that nothing of it stays in memory after it."""
        batch = self._take()
        last = batch[-1]
        writes = [one for one in batch if isinstance(one, Append | Remove | Note)]
        self._write([*self._take_owed(), *writes])
        if isinstance(last, Barrier):
            last.reached(frozenset(one for owed in self._owed for one in owed.entry_ids))
        return not isinstance(last, Close)

    def _take(self) -> list[Operation]:
        """Waits for an operation and takes all that are ready; a barrier or a close ends the batch."""
        batch = [self._queue.get()]
        while len(batch) < BATCH and not isinstance(batch[-1], Barrier | Close):
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    def _take_owed(self) -> list[Remove]:
        owed, self._owed = self._owed, []
        return owed

    def _write(self, writes: Sequence[Write]) -> None:
        """Writes all in one transaction, or, where that cannot be, as many as can be."""
        if not writes:
            return
        appends = [one for one in writes if isinstance(one, Append)]
        try:
            removed, removed_bytes = self._transaction(writes, appends)
        except Exception as error:  # noqa: BLE001 - reaches whoever appended; the writer lives on
            self._roll_back()
            if len(writes) > 1:
                # By halves: what does not fit must not refuse what does, nor cost a commit each.
                half = len(writes) // 2
                self._write(writes[:half])
                self._write(writes[half:])
                return
            self._failed(writes[0], error)
            return
        self._call_back(Committed(appends, None, removed, removed_bytes))

    def _transaction(self, writes: Sequence[Write], appends: Sequence[Append]) -> tuple[int, int]:
        # What only removes or notes may come back after a power cut, so it does not wait for the disk.
        self._synchronise(wanted=self._fsync and any(append.records for append in appends))
        connection = self._connection
        count = size = 0
        connection.execute("BEGIN IMMEDIATE")
        reserved = self._reserve(appends)
        rows.insert(
            connection,
            (
                (entry_id, append.conversation, append.agent_id, record, record_size)
                for append in appends
                for entry_id, record, record_size in zip(
                    append.entry_ids, append.records, append.sizes, strict=True
                )
            ),
        )
        plain = [
            one for w in writes if isinstance(w, Remove) and w.reason is None for one in w.entry_ids
        ]
        if plain:
            count, size = rows.remove(connection, plain)
        for write in writes:
            if isinstance(write, Note):
                rows.note_attempt(connection, write.entry_ids, write.reason)
            elif isinstance(write, Remove) and write.reason is not None:
                moved, moved_bytes = rows.set_aside(connection, write.entry_ids, write.reason)
                count, size = count + moved, size + moved_bytes
        connection.execute("COMMIT")
        self._reserved = reserved
        self.commits += 1
        return count, size

    def _reserve(self, appends: Sequence[Append]) -> int:
        highest = max((append.entry_ids.stop - 1 for append in appends), default=0)
        if highest <= self._reserved:
            return self._reserved
        rows.reserve_ids(self._connection, highest + ID_BLOCK)
        return highest + ID_BLOCK

    def _synchronise(self, *, wanted: bool) -> None:
        if wanted != self._is_synchronous:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._is_synchronous = wanted

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            logger.warning("the journal cannot roll back", extra={"cause": str(error)})

    def _failed(self, write: Write, error: Exception) -> None:
        match write:
            case Append():
                self._call_back(Committed([write], error))
            case Remove() if isinstance(error, sqlite3.Error):
                # Nobody asks again, so it is tried with every next batch until there is space.
                self._owed.append(write)
            case Remove():
                logger.error("the journal cannot take a removal", extra={"cause": repr(error)})
            case Note():
                # Only operators miss it, and while the disk is full each of these would be a line.
                logger.debug("the journal drops a note", extra={"cause": repr(error)})

    def _call_back(self, committed: Committed) -> None:
        try:
            self._loop.call_soon_threadsafe(self._tell, committed)
        except RuntimeError:
            # The loop is closed: the process is ending, and nobody waits any more.
            logger.debug("nobody to tell of a journal write")
