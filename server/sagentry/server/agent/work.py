"""What an agent does for a caller: it goes on when the caller is gone, and ends when the agent does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class AgentStoppingError(Exception):
    """The agent is stopping: the command must find or start another one."""


class OwnedWork:
    """The work under way.

    Args:
        on_use: Called when work begins and when it ends.

    Attributes:
        tasks: Runs it; None before the agent serves and after it.
        is_closed: Whether no more is taken.
        under_way: How much there is.
    """

    def __init__(self, on_use: Callable[[], None]) -> None:
        """Begins with none."""
        self.tasks: asyncio.TaskGroup | None = None
        self.is_closed = False
        self.under_way = 0
        self._on_use = on_use
        self._droppable: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Takes no more; what is droppable goes to the agent's next life. Safe to repeat."""
        self.is_closed = True
        for task in self._droppable:
            task.cancel()

    def own(self, work: Coroutine[Any, Any, T], *, while_closed: bool = False) -> asyncio.Future[T]:
        """Begins work and returns its answer to come.

        Raises:
            AgentStoppingError: The agent is stopping, also if it ends before the work does.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.tasks is None or (self.is_closed and not while_closed):
            work.close()
            raise AgentStoppingError
        delivery = _deliver(work, answer)
        try:
            task = self.tasks.create_task(delivery)
        except RuntimeError as error:
            # The agent is ending by a fault, and its task group takes no more.
            delivery.close()
            work.close()
            raise AgentStoppingError from error
        self.under_way += 1
        self._on_use()

        def on_done(_: asyncio.Task[None]) -> None:
            self.under_way -= 1
            self._on_use()
            # A task that is cancelled before its first step runs none of its own code.
            _give_up(work, answer)

        task.add_done_callback(on_done)
        return answer

    @contextmanager
    def droppable(self) -> Generator[None]:
        """Marks what the current task does as without effects: closing cancels it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - all of the agent's work is in tasks
        self._droppable.add(task)
        try:
            yield
        finally:
            self._droppable.discard(task)


async def _deliver(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    """Gives the outcome of work to whoever waits; a failure must not end the agent's other tasks."""
    try:
        answer.set_result(await work)
    except Exception as error:  # noqa: BLE001 - handed on, not swallowed
        answer.set_exception(error)
        # Nobody may be waiting any more, and asyncio need not warn of that.
        answer.exception()


def _give_up(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    """Tells who still waits that the agent ended before the work did: the next life may do it."""
    work.close()
    if not answer.done():
        answer.set_exception(AgentStoppingError())
        answer.exception()
