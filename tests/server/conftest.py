"""Fixtures of the server's tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: one of pytest's own is too long for a Unix socket."""
    made = Path(tempfile.mkdtemp(prefix="sg-"))
    yield made
    shutil.rmtree(made)
