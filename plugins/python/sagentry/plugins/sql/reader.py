"""Reads on connections of their own, so that they never wait for writes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sagentry.plugins.sdk import OverloadedError
from sagentry.plugins.sql import faults

logger = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 4
MAX_WAITING = 512


class Reader:
    """Runs reads, each in a transaction that sees one moment.

    Args:
        engine: Its own engine, with at least `THREADS` connections.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sql-reader")
        self._waiting = 0

    def close(self) -> None:
        """Returns when the reads that have begun are done."""
        self._threads.shutdown(cancel_futures=True)

    async def read(self, run: Callable[[Connection], T], *, expires: float | None) -> T:
        """Runs one read.

        Args:
            run: Does it, in a thread.
            expires: It is dropped if it has not begun by then (`time.monotonic()`).

        Raises:
            PluginError: what the read refused, or why the database could not do it.
        """
        if self._waiting >= MAX_WAITING:
            raise OverloadedError("too many reads wait")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._run, run, expires)
        finally:
            self._waiting -= 1

    def _run(self, run: Callable[[Connection], T], expires: float | None) -> T:
        if expires is not None and time.monotonic() >= expires:
            raise OverloadedError("no time was left when the read's turn came")
        try:
            with self._engine.begin() as connection:
                return run(connection)
        except DBAPIError as error:
            logger.warning("a read failed: %s", error.orig)
            raise faults.refusal(error, is_read=True) or error from error
