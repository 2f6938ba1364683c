from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sagentry.plugins.check import ALL, Level, Outcome, attached, run, selected
from tests.support.mention_plugin import mention_command, mention_target

pytestmark = pytest.mark.anyio


def refusal(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


async def test_the_judge_passes_the_launched_plugin(tmp_path: Path) -> None:
    async with attached(mention_target(tmp_path)) as session:
        results = [each async for each in run(selected(ALL, level=max(Level)), session)]

    outcomes = {result.outcome for result in results}
    assert outcomes == {Outcome.PASSED, Outcome.UNDECLARED}


def test_a_missing_folder_is_one_line_at_the_start(tmp_path: Path) -> None:
    code, text = refusal(*mention_command(tmp_path / "nowhere"))

    assert code == 1
    assert text == f"Error: folder {tmp_path}/nowhere: No such file or directory\n"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.md").touch()

    code, text = refusal(*mention_command(tmp_path / "a.md"))

    assert code == 1
    assert text == f"Error: folder {tmp_path}/a.md: Not a directory\n"


def test_a_plugin_that_is_told_no_endpoint_says_so_in_one_line(tmp_path: Path) -> None:
    code, text = refusal("env", "-u", "SAGENTRY_PLUGIN_ENDPOINT", *mention_command(tmp_path))

    assert code == 1
    assert text.count("\n") == 1
    assert "SAGENTRY_PLUGIN_ENDPOINT" in text
