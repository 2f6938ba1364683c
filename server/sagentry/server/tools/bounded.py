"""Runs code of others so that it ends when it must, whatever it does."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
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
                        self._close()
                        raise
                    awaited = self._coroutine.throw(thrown)
                else:
                    awaited = self._coroutine.send(sent)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _close(self) -> None:
        try:
            self._coroutine.close()
        except BaseException as error:  # whatever it does about it, it is over
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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        ended = False

        def settle(result: T | None, error: BaseException | None) -> None:
            nonlocal ended
            ended = True
            if done.cancelled():
                self._abandoned -= 1
            elif error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # a result is there without an error

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call()
            except StopIteration as stop:
                # A future takes every exception but this one.
                error = RuntimeError(f"raised StopIteration: {stop.value!r}")
            except BaseException as raised:  # the caller decides what it means
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                _log.debug("a tool ended after the server")

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            if not ended:
                self._abandoned += 1
                done.cancel()
            raise


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
        except BaseException as error:  # kept from the task group, which would wrap it
            failure.append(error)

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
    if not in_time:
        return False, None
    if failure:
        raise failure[0]
    return True, outcome[0]
