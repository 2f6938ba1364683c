from __future__ import annotations

import pytest


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
