"""Runs code of others so that it ends when it must, whatever it does."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EndableCoroutine(Generic[T]):
    """Awaits a coroutine and can end it even when it ignores being cancelled.

    A coroutine that catches its cancellation and awaits again would keep its task, and the task
    group of whoever started it, for ever. Here it is closed at that moment instead.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        """Wraps a coroutine that has not begun."""
        self._coroutine = coroutine
        self._must_end = False

    def must_end(self) -> None:
        """From now on the coroutine is closed when a cancellation reaches it."""
        self._must_end = True

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            awaited = self._coroutine.send(None)
            while True:
                try:
                    sent = yield awaited
                except BaseException as thrown:  # passed on: it is meant for the coroutine
                    if self._must_end:
                        self.close()
                        raise
                    awaited = self._coroutine.throw(thrown)
                else:
                    awaited = self._coroutine.send(sent)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def close(self) -> None:
        """Ends the coroutine where it stands; does nothing when it is over."""
        try:
            self._coroutine.close()
        except BaseException as error:  # noqa: BLE001  (whatever it does about it, it is over)
            _log.warning("a tool resisted its end: %s", type(error).__name__)


class ThreadsExhaustedError(Exception):
    """So many threads hang that no other is started."""


class Threads:
    """Runs each blocking call in a thread of its own and leaves behind those that hang.

    A thread cannot be stopped. One that hangs is left behind: nobody waits for it, its result is dropped,
    and another takes its place. Threads are daemons: one that hangs does not hold up the process's exit.
    """

    def __init__(self, most_abandoned: int) -> None:
        """Starts without threads; `most_abandoned` may hang before calls are refused."""
        self._most_abandoned = most_abandoned
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """How many threads were left behind and have not ended."""
        return self._abandoned

    async def run(self, name: str, call: Callable[[], T]) -> T:
        """Runs a call in a thread; when this is cancelled the thread is left behind.

        Raises:
            ThreadsExhaustedError: Too many threads hang.
        """
        if self._abandoned >= self._most_abandoned:
            raise ThreadsExhaustedError
        work = _Work(call, self._on_late_end)
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work.do,), name=name, daemon=True).start()
        try:
            return await work.done
        except asyncio.CancelledError:
            if not work.ended:
                work.abandoned = True
                self._abandoned += 1
            raise

    def _on_late_end(self) -> None:
        self._abandoned -= 1


class _Work(Generic[T]):
    """One call in a thread. All but `do` happens on the event loop."""

    def __init__(self, call: Callable[[], T], on_late_end: Callable[[], None]) -> None:
        self._call = call
        self._on_late_end = on_late_end
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[T] = self._loop.create_future()
        self.ended = False
        self.abandoned = False

    def do(self) -> None:
        settle: Callable[[], None]
        try:
            result = self._call()
            settle = partial(self._settle, lambda: self.done.set_result(result))
        except BaseException as raised:  # noqa: BLE001  (the caller decides what it means)
            # A future takes every exception but StopIteration.
            error = RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
            settle = partial(self._settle, partial(self.done.set_exception, error))
        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            _log.debug("a tool ended after the server")

    def _settle(self, set_outcome: Callable[[], None]) -> None:
        self.ended = True
        if self.abandoned:
            self._on_late_end()
        elif not self.done.done():
            set_outcome()


async def within(
    limit: timedelta, grace: timedelta, coroutine: Coroutine[Any, Any, T]
) -> tuple[bool, T | None]:
    """Runs a coroutine for at most `limit`, and `grace` more for what it does when cancelled.

    Returns:
        Whether it ended in time, and its result if so; a late result is dropped.

    Raises:
        CancelledError: This was cancelled; the coroutine has ended, at the latest after `grace`.
        Exception: What the coroutine raised in time.
    """
    loop = asyncio.get_running_loop()
    endable = EndableCoroutine(coroutine)
    outcome: list[T] = []
    failure: list[BaseException] = []
    in_time = True

    async def work() -> None:
        try:
            outcome.append(await endable)
        except asyncio.CancelledError:
            # Of the coroutine's own making when nobody cancelled: then it is a failure like others.
            failure.append(RuntimeError("cancelled itself"))
            raise
        except BaseException as error:  # noqa: BLE001  (the task group would wrap it)
            failure.append(error)

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work())

            def end() -> None:
                endable.must_end()
                task.cancel()

            try:
                done, _ = await asyncio.wait({task}, timeout=limit.total_seconds())
                in_time = bool(done)
            finally:
                if not task.done():
                    task.cancel()
                    timer = loop.call_later(grace.total_seconds(), end)
                    task.add_done_callback(lambda _: timer.cancel())
    finally:
        # It has not even begun if this was cancelled at once.
        endable.close()
    if not in_time:
        return False, None
    if failure:
        raise failure[0]
    return True, outcome[0]
