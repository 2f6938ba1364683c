from __future__ import annotations

import inspect
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support import deadline

if TYPE_CHECKING:
    from collections.abc import Generator

# The gate tries the same examples every time: a red gate means a change, never a lucky draw. `make soak`
# searches with new ones. No deadlines: a slow machine is no failure.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("soak", max_examples=2000, deadline=None)
settings.load_profile("gate")

# A shell that runs the tests in the background may make them ignore Ctrl-C, and what they start inherits it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio: grpc.aio knows no other loop."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend: str) -> None:
    """Keeps one event loop for all tests, because it lives as long as its longest fixture.

    grpc.aio has one completion queue per process and hands late events of a test to its loop; when
    that is closed already, whichever test runs then fails with "Event loop is closed".
    """


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Ends an asynchronous test that hangs, by name, before pytest-timeout ends the whole run."""
    limit = deadline.limit_of(pyfuncitem)
    if limit and inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = deadline.with_deadline(pyfuncitem.obj, limit * deadline.SHARE)
    return (yield)
