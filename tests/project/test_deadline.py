"""A test that hangs costs one test, and the summary says which: without it a red gate has no name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HANGING = """
import asyncio
import pytest

async def never():
    await asyncio.Event().wait()  # here

@pytest.mark.timeout(5)
async def test_hangs():
    async with asyncio.TaskGroup() as group:
        group.create_task(never())

async def test_the_next():
    pass
"""


def test_a_test_that_hangs_is_named_with_its_place_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        f"--rootdir={tmp_path}",
        tmp_path,
    )
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    summary = run.stdout[run.stdout.index("short test summary info") :]
    assert "test_hanging.py::test_hangs" in summary
    assert "hung for 4 s at " in run.stdout
    assert "await asyncio.Event().wait()  # here (in never)" in run.stdout
