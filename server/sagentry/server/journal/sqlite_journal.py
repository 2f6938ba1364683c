"""The journal on SQLite: group commit, callbacks in order, reads that hold no write up.

Nothing is kept in memory but counters and the ids of removals that a full disk keeps from being written.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sagentry.server.domain.scope import ConversationKey
from sagentry.server.errors import LimitExceededError, UnavailableError
from sagentry.server.journal import rows
from sagentry.server.journal.rows import EntryFacts, View
from sagentry.server.journal.schema import JournalFile, read_error
from sagentry.server.journal.writer import (
    Append,
    Barrier,
    Close,
    Committed,
    Note,
    Operation,
    Remove,
    Writer,
)
from sagentry.server.ports import JournalEntry, JournalRecord

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_MAX_BYTES = 1024 * 1024 * 1024


class SqliteJournal:
    """Implements the journal port. Its methods are for the event loop that it was made on.

    Args:
        path: The file. Beside it are SQLite's own `-wal` and `-shm`, and the lock `-lock`.
        fsync: False leaves the last moments to the operating system: a power cut may take them.
        max_bytes: Most bytes of payload; an append over it is refused.
        max_pages: Most pages of the file, for tests of a full disk; None for no limit.

    Attributes:
        total_entries: Entries on disk.
        total_bytes: Bytes of their payloads.

    Raises:
        SagentryError: As `JournalFile`.
    """

    def __init__(
        self,
        path: Path,
        *,
        fsync: bool = True,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_pages: int | None = None,
    ) -> None:
        """Opens the file and starts the writer."""
        self._path = path
        self._max_bytes = max_bytes
        self._file = JournalFile(path, fsync=fsync)
        try:
            if max_pages is not None:
                self._file.writing.execute(f"PRAGMA max_page_count = {max_pages}")
            self.total_entries, self.total_bytes, self._last_id = rows.totals(self._file.reading)
        except sqlite3.Error as error:
            self._file.close()
            raise read_error(error, path) from error
        self._pending_bytes = 0
        self._is_failing = False
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] | None = None
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="sagentry-journal-reader")
        self._writer = Writer(
            self._file.writing, fsync=fsync, reserved=self._last_id, tell=self._committed
        )

    @property
    def commits(self) -> int:
        """Transactions that were committed since the journal was opened."""
        return self._writer.commits

    # --- the port

    def append(
        self,
        conversation: ConversationKey,
        agent_id: str,
        records: Sequence[JournalRecord],
        *,
        on_durable: Callable[[Sequence[int], Exception | None], None],
    ) -> None:
        """Appends records together; see the port.

        Raises:
            UnavailableError: SERVER_DRAINING: the journal is closed. `on_durable` is not called.
        """
        sizes = [rows.size_of(record.payload) for record in records]
        actual = self.total_bytes + self._pending_bytes + sum(sizes)
        if actual > self._max_bytes:
            refusal = LimitExceededError(
                "JOURNAL_FULL",
                "the server's journal has reached its limit",
                limit=self._max_bytes,
                actual=actual,
            )
            # Through the writer, so that callbacks keep the order of the appends.
            self._put(Append(conversation, agent_id, (), 0, (), on_durable, refusal))
            return
        self._put(
            Append(conversation, agent_id, tuple(records), self._last_id + 1, sizes, on_durable)
        )
        self._pending_bytes += sum(sizes)
        self._last_id += len(records)

    def remove(self, entry_ids: Sequence[int]) -> None:
        """Removes acknowledged entries; see the port. Does nothing once the journal is closed."""
        self._put_if_open(Remove(tuple(entry_ids)))

    def set_aside(self, entry_ids: Sequence[int], reason: str) -> None:
        """Moves entries to quarantine; see the port. Does nothing once the journal is closed."""
        self._put_if_open(Remove(tuple(entry_ids), reason))

    def note_attempt(self, entry_ids: Sequence[int], reason: str) -> None:
        """Counts a failed attempt; see the port. Does nothing once the journal is closed."""
        self._put_if_open(Note(tuple(entry_ids), reason))

    async def read(self, conversation: ConversationKey) -> Sequence[JournalEntry]:
        """Returns the entries of a conversation, oldest first.

        Raises:
            CorruptDataError: JOURNAL_CORRUPT: the file was damaged meanwhile.
            UnavailableError: SERVER_DRAINING: the journal is closed; JOURNAL_UNUSABLE.
        """
        return await self._ask(lambda reading, view: rows.read(reading, conversation, view))

    async def conversations(self) -> Sequence[tuple[ConversationKey, str]]:
        """Returns (conversation, newest agent_id) of everything that has entries. Raises as `read`."""
        return await self._ask(rows.conversations)

    async def list_facts(
        self, *, after: int = 0, limit: int = 100, quarantined: bool = False
    ) -> Sequence[EntryFacts]:
        """Returns a page of entries with an id over `after`, oldest first. Raises as `read`.

        For operators: no content. Pass the last `entry_id` of a page for the next one.
        """
        return await self._ask(
            partial(rows.list_facts, quarantined=quarantined, after=after, limit=limit)
        )

    # --- life

    async def close(self) -> None:
        """Writes what is queued, answers who reads, and closes the file. Idempotent."""
        if self._finished is None:
            self._writer.put(Close())
            self._finished = self._loop.run_in_executor(None, self._finish)
        # A cancelled waiter must not leave the file open for those after it.
        await asyncio.shield(self._finished)

    def _finish(self) -> None:
        self._writer.join()
        self._readers.shutdown()
        self._file.close()

    def _put(self, operation: Operation) -> None:
        if self._finished is not None:
            raise UnavailableError("SERVER_DRAINING", "the journal is closed")
        self._writer.put(operation)

    def _put_if_open(self, operation: Remove | Note) -> None:
        if self._finished is None and operation.entry_ids:
            self._writer.put(operation)

    # --- reading

    async def _ask(self, read: Callable[[sqlite3.Connection, View], T]) -> T:
        """Reads, on the reader's connection, once everything put before is committed."""
        answer: asyncio.Future[T] = self._loop.create_future()
        up_to = self._last_id

        def reached(without: frozenset[int]) -> None:
            view = View(up_to, without)
            self._readers.submit(self._answer, lambda reading: read(reading, view), answer)

        self._put(Barrier(reached))
        try:
            return await answer
        except sqlite3.Error as error:
            raise read_error(error, self._path) from error

    def _answer(self, read: Callable[[sqlite3.Connection], T], answer: asyncio.Future[T]) -> None:
        try:
            found = read(self._file.reading)
        except Exception as error:  # noqa: BLE001 - handed to who asked
            self._call_back(partial(_fail, answer, error))
        else:
            self._call_back(partial(_succeed, answer, found))

    def _call_back(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop is closed: the process is ending, and nobody waits any more.
            logger.debug("nobody to tell of a journal read")

    # --- what came of it, on the event loop

    def _committed(self, committed: Committed) -> None:
        """Counts first, so that a callback sees the journal as it is."""
        self.total_entries -= committed.removed
        self.total_bytes -= committed.removed_bytes
        for append in committed.appends:
            self._pending_bytes -= sum(append.sizes)
            if committed.error is None:
                self.total_entries += len(append.records)
                self.total_bytes += sum(append.sizes)
        self._note_health(committed)
        error = None if committed.error is None else self._refusal(committed.error)
        for append in committed.appends:
            refused = append.refused or error
            try:
                append.on_durable([] if refused else append.entry_ids, refused)
            except Exception as fault:  # noqa: BLE001 - one agent's fault is not its neighbours'
                self._loop.call_exception_handler(
                    {"message": "a callback of the journal failed", "exception": fault}
                )

    def _note_health(self, committed: Committed) -> None:
        """Logs when the disk begins to fail and when it works again, not each append between."""
        is_failing = isinstance(committed.error, sqlite3.Error)
        if is_failing and not self._is_failing:
            logger.error("the journal cannot be written", extra={"cause": str(committed.error)})
        has_written = committed.error is None and any(a.records for a in committed.appends)
        if has_written and self._is_failing:
            logger.info("the journal can be written again")
        self._is_failing = is_failing or (self._is_failing and not has_written)

    def _refusal(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error  # a record that no disk could keep: the fault of who wrote it
        refusal = LimitExceededError(
            "JOURNAL_FULL",
            f"the server's journal cannot be written: {error}",
            limit=self._max_bytes,
            actual=self.total_bytes,
        )
        refusal.__cause__ = error
        return refusal


def _succeed(answer: asyncio.Future[T], found: T) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
