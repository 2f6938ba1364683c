"""The journal on SQLite: one writer thread, group commit, callbacks in order.

Whatever is ready goes into one transaction and one fsync, however many agents wrote it; there is no timer.
Nothing is kept in memory but counters.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.errors import LimitExceededError, SagentryError, UnavailableError
from sagentry.server.journal.schema import open_journal
from sagentry.server.ports import JournalEntry, JournalRecord

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 512
"""Most operations of one transaction."""

DEFAULT_MAX_BYTES = 1024 * 1024 * 1024

_COLUMNS = (
    "entry_id, scope_kind, tenant, scope_partition, conversation_id, agent_id, kind, epoch, revision, "
    "payload, size, create_time"
)

OnDurable = Callable[[Sequence[int], Exception | None], None]


@dataclass(frozen=True, slots=True)
class _Append:
    conversation: ConversationKey
    agent_id: str
    records: Sequence[JournalRecord]
    entry_ids: Sequence[int]
    size: int
    on_durable: OnDurable


@dataclass(frozen=True, slots=True)
class _Remove:
    entry_ids: Sequence[int]
    reason: str | None
    """None removes; a text moves to quarantine with it."""


@dataclass(frozen=True, slots=True)
class _Read:
    read: Callable[[sqlite3.Connection], object]
    done: asyncio.Future[object]


class _Close:
    pass


_Operation = _Append | _Remove | _Read | _Close


class SqliteJournal:
    """Implements the journal port.

    Args:
        path: The file.
        fsync: False leaves the last moments to the operating system: a power cut may take them.
        max_bytes: Most bytes of payload; an append over it is refused.
        max_pages: Most pages of the file, for tests of a full disk; None for no limit.

    Raises:
        SagentryError: As `open_journal`.
    """

    def __init__(
        self,
        path: Path,
        *,
        fsync: bool = True,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_pages: int | None = None,
    ) -> None:
        """Opens the file and starts the writer thread."""
        self._path = path
        self._max_bytes = max_bytes
        self._connection = open_journal(path, fsync=fsync)
        if max_pages is not None:
            self._connection.execute(f"PRAGMA max_page_count = {max_pages}")
        count, size, last, last_set_aside = self._connection.execute(
            "SELECT COUNT(*), COALESCE(SUM(size), 0), COALESCE(MAX(entry_id), 0), "
            "(SELECT COALESCE(MAX(entry_id), 0) FROM quarantine) FROM entries"
        ).fetchone()
        self.total_entries: int = count
        self.total_bytes: int = size
        self._last_id = max(last, last_set_aside)
        self._pending_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Operation] = queue.SimpleQueue()
        self._is_closed = False
        self.commits = 0
        self._thread = threading.Thread(target=self._write, name="sagentry-journal", daemon=True)
        self._thread.start()

    # --- the port

    def append(
        self,
        conversation: ConversationKey,
        agent_id: str,
        records: Sequence[JournalRecord],
        *,
        on_durable: OnDurable,
    ) -> None:
        """Appends records together; see the port."""
        size = sum(len(record.payload.encode()) for record in records)
        refusal = self._refusal(size)
        if refusal is not None:
            # Through the writer's queue, so that callbacks keep the order of the appends.
            self._put(_Append(conversation, agent_id, (), (), 0, _refusing(on_durable, refusal)))
            return
        self._pending_bytes += size
        entry_ids = range(self._last_id + 1, self._last_id + 1 + len(records))
        self._last_id += len(records)
        self._put(_Append(conversation, agent_id, records, entry_ids, size, on_durable))

    def remove(self, entry_ids: Sequence[int]) -> None:
        """Removes acknowledged entries; see the port."""
        if not self._is_closed:
            self._put(_Remove(tuple(entry_ids), None))

    def set_aside(self, entry_ids: Sequence[int], reason: str) -> None:
        """Moves entries to quarantine; see the port."""
        if not self._is_closed:
            self._put(_Remove(tuple(entry_ids), reason))

    async def read(self, conversation: ConversationKey) -> Sequence[JournalEntry]:
        """Returns the entries of a conversation, oldest first."""
        key = _key(conversation)

        def read(connection: sqlite3.Connection) -> list[JournalEntry]:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE scope_kind = ? AND tenant = ? "  # noqa: S608
                "AND scope_partition = ? AND conversation_id = ? ORDER BY entry_id",
                key,
            )
            return [_entry(row) for row in rows]

        return await self._ask(read)

    async def conversations(self) -> Sequence[tuple[ConversationKey, str]]:
        """Returns (conversation, newest agent_id) of everything that has entries."""

        def read(connection: sqlite3.Connection) -> list[tuple[ConversationKey, str]]:
            # With a bare MAX, SQLite takes the other columns from the row that has it.
            rows = connection.execute(
                "SELECT scope_kind, tenant, scope_partition, conversation_id, agent_id, MAX(entry_id) "
                "FROM entries GROUP BY scope_kind, tenant, scope_partition, conversation_id "
                "ORDER BY MIN(entry_id)"
            )
            return [(_conversation(row), row[4]) for row in rows]

        return await self._ask(read)

    # --- life

    async def close(self) -> None:
        """Writes what is queued and closes the file. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(_Close())
        await asyncio.to_thread(self._thread.join)

    def _put(self, operation: _Operation) -> None:
        if self._is_closed:
            raise UnavailableError("SERVER_DRAINING", "the journal is closed")
        self._queue.put(operation)

    async def _ask(self, read: Callable[[sqlite3.Connection], T]) -> T:
        done: asyncio.Future[object] = self._loop.create_future()
        self._put(_Read(read, done))
        answer: T = await done  # type: ignore[assignment] # what `read` returned
        return answer

    def _refusal(self, size: int) -> SagentryError | None:
        actual = self.total_bytes + self._pending_bytes + size
        if actual <= self._max_bytes:
            return None
        return LimitExceededError(
            "JOURNAL_FULL",
            "the server's journal has reached its limit",
            limit=self._max_bytes,
            actual=actual,
        )

    # --- the writer thread

    def _write(self) -> None:
        is_open = True
        while is_open:
            batch = self._take()
            if isinstance(batch[-1], _Close):
                batch.pop()
                is_open = False
            for group in _groups(batch):
                self._do(group)
        self._connection.close()

    def _take(self) -> list[_Operation]:
        """Waits for an operation and takes all that are ready; a close ends the batch."""
        batch = [self._queue.get()]
        while len(batch) < BATCH and not isinstance(batch[-1], _Close):
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    def _do(self, group: Sequence[_Operation]) -> None:
        first = group[0]
        if isinstance(first, _Read):
            self._answer(first)
            return
        error = self._transaction(group)
        if error is not None and len(group) > 1:
            # One by one: an append that does not fit must not refuse those that do.
            for operation in group:
                self._do([operation])
            return
        self._tell(group, error)

    def _transaction(self, group: Sequence[_Operation]) -> Exception | None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            removed = [self._apply(operation) for operation in group]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return error
        self.commits += 1
        for count, size in removed:
            self.total_entries -= count
            self.total_bytes -= size
        return None

    def _apply(self, operation: _Operation) -> tuple[int, int]:
        """Does one operation inside the transaction; returns (entries, bytes) that it removed."""
        match operation:
            case _Append():
                self._insert(operation)
                return 0, 0
            case _Remove():
                return self._delete(operation)
            case _:
                return 0, 0

    def _insert(self, append: _Append) -> None:
        now = datetime.now(UTC).isoformat()
        key = _key(append.conversation)
        self._connection.executemany(
            f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            [
                (
                    entry_id,
                    *key,
                    append.agent_id,
                    record.kind,
                    record.epoch,
                    record.revision,
                    record.payload,
                    len(record.payload.encode()),
                    now,
                )
                for entry_id, record in zip(append.entry_ids, append.records, strict=True)
            ],
        )

    def _delete(self, remove: _Remove) -> tuple[int, int]:
        count = size = 0
        for entry_id in remove.entry_ids:
            row = self._connection.execute(
                "SELECT size FROM entries WHERE entry_id = ?", (entry_id,)
            ).fetchone()
            if row is None:
                continue
            if remove.reason is not None:
                self._connection.execute(
                    f"INSERT INTO quarantine ({_COLUMNS}, reason, quarantine_time) "  # noqa: S608
                    f"SELECT {_COLUMNS}, ?, ? FROM entries WHERE entry_id = ?",
                    (remove.reason, datetime.now(UTC).isoformat(), entry_id),
                )
            self._connection.execute("DELETE FROM entries WHERE entry_id = ?", (entry_id,))
            count, size = count + 1, size + row[0]
        return count, size

    def _answer(self, asked: _Read) -> None:
        try:
            answer = asked.read(self._connection)
        except Exception as error:  # noqa: BLE001 - handed to who asked
            self._call_back(functools.partial(_fail, asked.done, error))
            return
        self._call_back(lambda: _succeed(asked.done, answer))

    def _tell(self, group: Sequence[_Operation], error: Exception | None) -> None:
        appends = [operation for operation in group if isinstance(operation, _Append)]
        refusal = self._refusal_of(error) if error is not None else None
        if refusal is not None:
            logger.error("the journal cannot be written", extra={"cause": str(error)})
        if refusal is None:
            self.total_entries += sum(len(append.records) for append in appends)
            self.total_bytes += sum(append.size for append in appends)
        if not appends:
            return

        def tell() -> None:
            for append in appends:
                self._pending_bytes -= append.size
                append.on_durable([] if refusal else append.entry_ids, refusal)

        self._call_back(tell)

    def _refusal_of(self, error: Exception) -> SagentryError:
        return LimitExceededError(
            "JOURNAL_FULL",
            f"the server's journal cannot be written: {error}",
            limit=self._max_bytes,
            actual=self.total_bytes,
        )

    def _call_back(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop is closed: the process is ending, and nobody waits any more.
            logger.debug("nobody to tell of a journal write")


def _groups(batch: Sequence[_Operation]) -> list[list[_Operation]]:
    """Cuts a batch into transactions: reads stand alone, so they see all that was put before them."""
    groups: list[list[_Operation]] = []
    for operation in batch:
        if isinstance(operation, _Read) or not groups or isinstance(groups[-1][0], _Read):
            groups.append([operation])
        else:
            groups[-1].append(operation)
    return groups


def _refusing(on_durable: OnDurable, refusal: SagentryError) -> OnDurable:
    return lambda _ids, _error: on_durable([], refusal)


def _key(conversation: ConversationKey) -> tuple[str, str, str, str]:
    scope = conversation.scope
    return scope.kind.value, scope.tenant, scope.partition, conversation.conversation_id


def _conversation(row: Sequence[str]) -> ConversationKey:
    return ConversationKey(ScopeKey(ScopeKind(row[0]), row[1], row[2]), row[3])


def _entry(row: sqlite3.Row | tuple[object, ...]) -> JournalEntry:
    entry_id, kind, tenant, partition, conversation, agent, what, epoch, revision, payload, *_ = row
    return JournalEntry(
        entry_id=int(str(entry_id)),
        conversation=_conversation((str(kind), str(tenant), str(partition), str(conversation))),
        agent_id=str(agent),
        record=JournalRecord(str(what), int(str(epoch)), int(str(revision)), str(payload)),
    )


def _succeed(done: asyncio.Future[object], answer: object) -> None:
    if not done.done():
        done.set_result(answer)


def _fail(done: asyncio.Future[object], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
