"""What a test that hangs says before it is ended.

pytest-timeout ends the whole run from a thread, because a signal would leave the one event loop in the middle
of somebody's callback. So an asynchronous test is ended first, from inside the loop: it fails by itself, is
named in the summary with the place where each of its tasks waited, and the tests after it still run.
"""

from __future__ import annotations

import asyncio
import functools
import linecache
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# The share of pytest-timeout's limit after which the loop ends the test; the rest is for its finally clauses.
SHARE = 0.8


def limit_of(item: pytest.Item) -> float:
    """Returns the seconds after which pytest-timeout would end the run; 0 means never."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout") or 0)
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


def with_deadline(
    test: Callable[..., Awaitable[None]], seconds: float
) -> Callable[..., Awaitable[None]]:
    """Returns the test as one that fails after so many seconds and says where its tasks wait."""

    @functools.wraps(test)
    async def run(**arguments: Any) -> None:
        waiting: list[str] = []
        loop = asyncio.get_running_loop()
        # Looked at before the timeout cancels anything, from the same clock.
        look = loop.call_later(seconds, lambda: waiting.extend(_places()))
        try:
            async with asyncio.timeout(seconds + 0.1) as deadline:
                await test(**arguments)
        except BaseException:
            if deadline.expired():
                pytest.fail(f"hung for {seconds:g} s at {'; '.join(waiting)}", pytrace=False)
            raise
        finally:
            look.cancel()

    return run


def _places() -> list[str]:
    return sorted(filter(None, (_place(task) for task in asyncio.all_tasks())))


def _place(task: asyncio.Task[Any]) -> str:
    """Returns the innermost line of ours in which the task waits, with the function that the task runs."""
    inner: Any = task.get_coro()
    name = getattr(inner, "__qualname__", task.get_name())
    place = ""
    while isinstance(inner, CoroutineType) and inner.cr_frame is not None:
        code, line = inner.cr_frame.f_code, inner.cr_frame.f_lineno
        if "site-packages" not in code.co_filename and "asyncio" not in code.co_filename:
            source = linecache.getline(code.co_filename, line).strip()
            place = f"{code.co_filename.rsplit('/', 1)[-1]}:{line} {source}"
        inner = inner.cr_await
    return f"{place} (in {name})" if place else ""
