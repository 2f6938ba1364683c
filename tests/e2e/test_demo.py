"""`make demo` cleans up after itself and fails when something is not as it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.repository import TOOLS
from tests.support.servers import short_folder
from tests.support.terminal import terminal

pytestmark = pytest.mark.timeout(150)

SECONDS = 100
DEMO = [sys.executable, str(TOOLS / "demo.py")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder for temporary files of the demo and of whatever it starts."""
    with short_folder() as made:
        yield made


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}


def start(folder: Path, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, *map(str, words)],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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

    for output, errors, code in ended:
        assert (errors, code) == ("", 0), output + errors
        assert output.endswith("demo: all of it agreed\n")
    assert left_by(folder) == []


def test_one_that_is_ended_half_way_leaves_nothing(folder: Path) -> None:
    process = start(folder)
    assert process.stdout is not None
    while "[book_table" not in process.stdout.readline():
        assert process.poll() is None

    process.terminate()
    process.communicate(timeout=SECONDS)

    assert process.returncode == 143
    assert left_by(folder) == []


def books_again(files: Path) -> None:
    """A server that ran a finished tool again would leave the same behind."""
    script = files / "script.yaml"
    again = 'name: book_table, arguments: [\'{"restaurant": "Luigi\'\'s", "people": 4}\']'
    invite = 'name: send_invitation, arguments: [\'{"text": "Dinner on Friday!"}\']'
    text = script.read_text()
    assert invite in text
    call = "      - tool_call: {" + invite + "}\n"
    script.write_text(text.replace(call, call + "      - tool_call: {" + again + "}\n"))


def does_not_start(files: Path) -> None:
    (files / "script.yaml").write_text("version: 1\nanswers: [\n")


def has_no_document(files: Path) -> None:
    (files / "documents" / "Plan.md").unlink()


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (books_again, "bookings: 2 instead of one"),
        (does_not_start, "the server did not start"),
        (has_no_document, "MESSAGE_REJECTED"),
    ],
)
def test_one_that_does_not_go_as_it_should_fails_and_leaves_nothing(
    folder: Path, tmp_path: Path, break_it: Callable[[Path], None], problem: str
) -> None:
    files = Path(shutil.copytree(TOOLS / "demo", tmp_path / "demo"))
    break_it(files)
    process = start(folder, "--files", files)
    output, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == 1
    assert f"demo: error: {problem}" in errors
    assert "agreed" not in output
    assert left_by(folder) == []


async def test_on_a_terminal_it_is_a_conversation_and_leaves_nothing(folder: Path) -> None:
    async with terminal(*DEMO, environment=environment(folder)) as screen:
        await screen.until("chat · new")
        screen.type("What is 17 * 23?\r")
        await screen.until("The calculator says: 391.")
        screen.type("\x04")
        assert await screen.ended() == 0

    assert left_by(folder) == []
