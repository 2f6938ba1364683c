"""What the documentation says can be done, can be done."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.markdown import Command, commands, dead_links, pages
from tests.support.repository import ROOT

COMMANDS = [command for page in pages() for command in commands(page)]
MARKED = [command for command in COMMANDS if command.runs]
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))


@pytest.mark.parametrize("command", MARKED, ids=lambda command: f"{command.page}: {command.line}")
def test_marked_command_succeeds_and_prints_what_the_page_shows(command: Command) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.line],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    pattern = ".*".join(re.escape(line.strip()) for line in command.output)
    assert re.search(pattern, done.stdout, re.DOTALL), done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.line}")
def test_make_target_that_a_page_names_exists(command: Command) -> None:
    named = re.findall(r"\bmake ([a-z-]+)", command.line)

    assert set(named) <= TARGETS


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []
