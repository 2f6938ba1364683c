"""An open store: one writer, some readers, one database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from google.protobuf.message import Message
from sqlalchemy import Connection

from sagentry.plugins.sdk import Call, QuotaExceededError
from sagentry.plugins.sql.database import BUSY_SECONDS, Database, open_database
from sagentry.plugins.sql.reader import Reader
from sagentry.plugins.sql.writer import MAX_WAITING, Work, Writer

R = TypeVar("R", bound=Message)
T = TypeVar("T")

MAX_ANSWER_BYTES = 32 * 1024 * 1024 - 64 * 1024
"""What an answer may have, below the cap of 32 MiB for what is put around it."""

RETRY_SPLIT = timedelta(milliseconds=100)
"""When to repeat what fits into an answer of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store runs.

    Attributes:
        busy_seconds: How long a write waits for another process's lock.
        max_waiting: Most writes that wait; one more is refused as OVERLOADED.
        on_commit: See `Writer`.
    """

    busy_seconds: float = BUSY_SECONDS
    max_waiting: int = MAX_WAITING
    on_commit: Callable[[int], None] | None = None


class Store:
    """What the servicers work with.

    Args:
        database: Closed with the store.
        options: How it runs.
    """

    def __init__(self, database: Database, options: StoreOptions) -> None:
        self.database = database
        self._writer = Writer(
            database.writing, max_waiting=options.max_waiting, on_commit=options.on_commit
        )
        self._reader = Reader(database.reading)
        self._writer.start()

    def close(self) -> None:
        """Commits what waits and closes the database."""
        self._writer.close()
        self._reader.close()
        self.database.close()

    async def read(self, call: Call, run: Callable[[Connection], T]) -> T:
        """Runs a read beside the writer.

        Raises:
            PluginError: what the read refused, or why the database could not do it.
        """
        return await self._reader.read(run, expires=call.expires)

    async def write(
        self, call: Call, request: Message, run: Callable[[Connection], R], *, is_read: bool = False
    ) -> R:
        """Runs a write; returns its answer when it is committed.

        Args:
            call: For whom.
            request: What `run` keeps in memory.
            run: Does it; called in the writer's thread, maybe twice.
            is_read: Whether it returns stored data that may be damaged.

        Raises:
            PluginError: what the write refused, or why the database could not do it.
        """
        answer = AnswerSize()
        work = Work(
            run=lambda connection: answer.checked(run(connection)),
            size=request.ByteSize(),
            expires=call.expires,
            is_read=is_read,
        )
        return await self._writer.write(work)

    async def write_all(self, works: Sequence[Work[T]]) -> list[T | BaseException]:
        """Runs independent writes; returns for each its answer or its error.

        Raises:
            OverloadedError: if too much waits already; then none of them has begun.
        """
        return await self._writer.write_all(works)


class AnswerSize:
    """Keeps what one call answers below the cap. Used inside the transaction.

    An answer may be much larger than its request: a repeated save returns whole rows. What could
    not be sent must not be committed, or the host would never learn of it.
    """

    def __init__(self) -> None:
        self._size = 0

    def checked(self, response: R) -> R:
        """Returns the response, which counts from now on.

        Raises:
            QuotaExceededError: if it would not fit; to be repeated alone if it fits alone.
        """
        size = response.ByteSize()
        if self._size + size > MAX_ANSWER_BYTES:
            raise QuotaExceededError(
                limit=MAX_ANSWER_BYTES,
                actual=self._size + size,
                retry_after=RETRY_SPLIT if size <= MAX_ANSWER_BYTES else None,
            )
        self._size += size
        return response


@contextmanager
def open_store(target: str, options: StoreOptions | None = None) -> Iterator[Store]:
    """Opens a store meanwhile.

    Args:
        target: Path of a SQLite file, or a `sqlite:///…` address.
        options: How it runs.

    Yields:
        The store.

    Raises:
        DatabaseError: if the database cannot be used.
    """
    options = options or StoreOptions()
    store = Store(open_database(target, busy_seconds=options.busy_seconds), options)
    try:
        yield store
    finally:
        store.close()
