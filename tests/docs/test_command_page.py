"""The page of the command shows what the command prints."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown import commands
from tests.support.repository import ROOT
from tests.support.serve import SAGENTRY, serving
from tests.support.servers import short_folder

PAGE = ROOT / "docs" / "command.md"


@contextlib.contextmanager
def demo_server() -> Iterator[dict[str, str]]:
    """A server as nobody configured it; yields what finds it."""
    with short_folder() as folder, serving(folder, "--listen", f"unix:{folder}/s") as (_, where):
        yield {"SAGENTRY_SERVER": where[0], "HOME": str(folder), "PATH": str(SAGENTRY.parent)}


@pytest.mark.timeout(120)
def test_the_commands_for_scripts_print_what_the_page_shows() -> None:
    shown = [one for one in commands(PAGE) if one.line.startswith("sagentry ")]
    with demo_server() as environment:
        for command in shown:
            done = subprocess.run(
                ["/bin/bash", "-c", command.line],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            lines = [re.escape(line).replace("…", ".*") for line in command.output]
            assert re.search("(.*\n)*".join(lines), done.stdout), (command.line, done.stdout)

    assert len(shown) == 4


@pytest.mark.timeout(120)
def test_the_screens_of_the_page_are_those_of_a_real_terminal() -> None:
    """Somebody who tries it must recognise what they see."""
    done = subprocess.run(
        [sys.executable, str(Path("tools") / "screens.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
