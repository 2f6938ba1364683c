"""Shared by the tests of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend: str) -> AsyncIterator[None]:
    """Keeps one event loop for all tests.

    grpc.aio has one completion queue per process and hands late events of a test to its loop; when
    that is closed already, whichever test runs then fails with "Event loop is closed".
    """
    yield
