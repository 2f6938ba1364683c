"""`make demo` cleans up after itself and fails when something is not as it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT, TOOLS
from tests.support.servers import short_folder

SECONDS = 50


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder for temporary files of the demo and of whatever it starts."""
    with short_folder() as made:
        yield made


def start(folder: Path, script: Path = TOOLS / "demo.sh") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [script],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def copy_of_demo(root: Path, failing: str) -> Path:
    """A checkout with little but the demo, where one command fails."""
    bin_folder = root / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (root / "tools").mkdir()
    (root / "plugins").symlink_to(ROOT / "plugins")
    real = Path(sys.executable).parent
    scripts = {
        "python": f'exec "{real}/python" "$@"',
        "sagentry": f'case "$*" in "{failing}"*) exit 1;; esac\nexec "{real}/sagentry" "$@"',
    }
    for name, body in scripts.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_folder / name).chmod(0o755)
    return Path(shutil.copy(TOOLS / "demo.sh", root / "tools"))


def left_by(folder: Path) -> list[str]:
    """Files in the folder and processes that were started with it as their temporary one."""
    mark = f"TMPDIR={folder}\0".encode()
    left = [str(path) for path in folder.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                left.append((process / "cmdline").read_text(encoding="utf-8").replace("\0", " "))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return left


def test_two_at_once_do_not_collide_and_leave_nothing(folder: Path) -> None:
    both = [start(folder), start(folder)]
    ended = [(*process.communicate(timeout=SECONDS), process.returncode) for process in both]

    assert [(errors, code) for _, errors, code in ended] == [("", 0)] * 2
    assert all(output.endswith("demo: all of it agreed\n") for output, _, _ in ended)
    assert left_by(folder) == []


def test_one_that_is_ended_half_way_leaves_nothing(folder: Path) -> None:
    process = start(folder)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("sagentry: ready on"):
        assert process.poll() is None

    process.terminate()
    process.communicate(timeout=SECONDS)

    assert process.returncode == 143
    assert left_by(folder) == []


@pytest.mark.parametrize("failing", ["serve", "plugin check"])
def test_one_whose_commands_fail_fails_and_leaves_nothing(
    folder: Path, tmp_path: Path, failing: str
) -> None:
    process = start(folder, copy_of_demo(tmp_path, failing))
    output, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == 1
    assert "demo: error: " in errors
    assert "agreed" not in output
    assert left_by(folder) == []
