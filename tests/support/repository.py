"""Runs the project's tools, on this repository or on one made for a test."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"


@dataclass(frozen=True)
class Outcome:
    """What a tool did."""

    code: int
    output: str


@dataclass(frozen=True)
class Repository:
    """A small git repository to point the checks at."""

    root: Path

    def write(self, path: str, text: str) -> None:
        """Adds a file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def check(self, name: str) -> Outcome:
        """Runs one of the checks on this repository."""
        return run_tool(name, "--root", self.root)


def run_tool(name: str, *arguments: str | Path) -> Outcome:
    """Runs a tool as `make check` does."""
    command = [sys.executable, TOOLS / f"{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return Outcome(done.returncode, done.stdout + done.stderr)
