"""The one writer: a thread that commits together what is ready.

A commit costs the same whether it holds one write or a hundred, so the writer takes all that waits,
runs it in one transaction and wakes the callers when that is on disk. It never waits for more: a single
call is committed at once, and what arrives meanwhile is the next batch. Each piece of work is isolated
by a savepoint, so one that fails leaves the others of its batch alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sagentry.plugins.sdk import OverloadedError, PluginError
from sagentry.plugins.sql import faults

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAITING = 2048
MAX_WAITING_BYTES = 128 * 1024 * 1024
MAX_BATCH = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024


@dataclass(eq=False, slots=True)
class Work(Generic[T]):
    """Something to do in a transaction.

    Attributes:
        run: Does it. Called in the writer's thread; maybe again, in a new transaction, if a batch
            mate has spoiled the first one. What it raises undoes what it wrote.
        size: Bytes that it keeps in memory while it waits.
        expires: It is dropped if it has not begun by then (`time.monotonic()`).
        is_read: Whether it returns stored data.
        result: What came of it.
    """

    run: Callable[[Connection], T]
    size: int = 0
    expires: float | None = None
    is_read: bool = False
    result: Future[T] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Done:
    value: object = None
    error: BaseException | None = None


class Writer:
    """Runs work in transactions, many at a time.

    Args:
        engine: Its own engine; transactions begin with a lock for writing.
        max_waiting: Most works that wait; one more is refused as OVERLOADED.
        on_commit: Told, in the writer's thread, how many works the commit that has just succeeded
            held. They are not yet answered.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_waiting: int = MAX_WAITING,
        on_commit: Callable[[int], None] | None = None,
    ) -> None:
        self._engine = engine
        self._max_waiting = max_waiting
        self._on_commit = on_commit
        self._ready = threading.Condition()
        self._waiting: deque[Work[Any]] = deque()  # of any result
        self._waiting_bytes = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._main, name="sql-writer", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Commits what waits, refuses what comes, and returns when the thread has ended."""
        with self._ready:
            self._is_closing = True
            self._ready.notify()
        self._thread.join()

    async def write(self, work: Work[T]) -> T:
        """Runs one work; returns when it is committed.

        If the caller is cancelled before the work has begun, it is dropped; afterwards it commits.

        Raises:
            PluginError: what the work refused, or why the database could not do it.
        """
        self._enqueue([work])
        return await asyncio.wrap_future(work.result)

    async def write_all(self, works: Sequence[Work[T]]) -> list[T | BaseException]:
        """Runs several independent works; returns for each its result or its error, in order.

        Raises:
            OverloadedError: if too much waits already; then none of them has begun.
        """
        self._enqueue(works)
        results = (asyncio.wrap_future(work.result) for work in works)
        done: list[T | BaseException] = await asyncio.gather(*results, return_exceptions=True)
        return done

    def _enqueue(self, works: Sequence[Work[Any]]) -> None:
        size = sum(work.size for work in works)
        with self._ready:
            if self._is_closing:
                raise OverloadedError("the store is shutting down")
            # What is too much by itself is taken when nothing else waits.
            is_full = self._waiting and (
                len(self._waiting) + len(works) > self._max_waiting
                or self._waiting_bytes + size > MAX_WAITING_BYTES
            )
            if is_full:
                raise OverloadedError("too many writes wait")
            self._waiting.extend(works)
            self._waiting_bytes += size
            self._ready.notify()

    def _main(self) -> None:
        while batch := self._take():
            outcomes = self._outcomes(batch)
            for work, done in zip(batch, outcomes, strict=True):
                _answer(work, done)

    def _take(self) -> list[Work[Any]]:
        """Waits for work; returns what is ready, or nothing when the writer closes."""
        with self._ready:
            while not self._waiting and not self._is_closing:
                self._ready.wait()
            batch: list[Work[Any]] = []
            size = 0
            while self._waiting and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                work = self._waiting.popleft()
                self._waiting_bytes -= work.size
                size += work.size
                batch.append(work)
            return batch

    def _outcomes(self, batch: Sequence[Work[Any]]) -> list[_Done]:
        begun = [work for work in batch if _begins(work)]
        done = dict(zip(begun, self._committed(begun), strict=True)) if begun else {}
        return [done.get(work, _Done()) for work in batch]

    def _committed(self, works: Sequence[Work[Any]]) -> list[_Done]:
        try:
            outcomes = self._attempt(works)
        except DBAPIError as error:
            logger.warning("a transaction of %d works failed: %s", len(works), error.orig)
            if len(works) == 1 or faults.is_busy(error):
                return [_Done(error=_typed(error, work)) for work in works]
            # Which of them it was is not known, and some databases undo the whole transaction.
            return [self._committed([work])[0] for work in works]
        except Exception as error:  # noqa: BLE001  a bug must fail these works and no later ones
            return [_Done(error=error) for _ in works]
        if self._on_commit is not None:
            self._on_commit(len(works))
        return outcomes

    def _attempt(self, works: Sequence[Work[Any]]) -> list[_Done]:
        with self._engine.begin() as connection:
            if len(works) == 1:
                return [_Done(works[0].run(connection))]
            return [_isolated(connection, work) for work in works]


def _isolated(connection: Connection, work: Work[Any]) -> _Done:
    # In plain SQL: SQLAlchemy's nested transactions cost more than the work itself.
    connection.exec_driver_sql("SAVEPOINT work")
    try:
        done = _Done(work.run(connection))
    except DBAPIError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer to this work
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT work")
        done = _Done(error=error)
    connection.exec_driver_sql("RELEASE SAVEPOINT work")
    return done


def _begins(work: Work[Any]) -> bool:
    """Says whether somebody still wants it; from then on it cannot be cancelled."""
    if not work.result.set_running_or_notify_cancel():
        return False
    if work.expires is not None and time.monotonic() >= work.expires:
        work.result.set_exception(OverloadedError("no time was left when the write's turn came"))
        return False
    return True


def _answer(work: Work[Any], done: _Done) -> None:
    if work.result.done():
        return
    if done.error is not None:
        work.result.set_exception(done.error)
    else:
        work.result.set_result(done.value)


def _typed(error: DBAPIError, work: Work[Any]) -> PluginError | DBAPIError:
    return faults.refusal(error, is_read=work.is_read) or error
