"""Shared by all tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio only: grpc.aio knows nothing else."""
    return "asyncio"
