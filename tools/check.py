#!/usr/bin/env python3
"""Runs every check and says one line about each; what a failing one has to say follows its line.

tools/check.py             all of them
tools/check.py sizes buf   those whose name contains one of the words
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Check:
    name: str
    """What is true when it passes."""
    command: Sequence[str | Path]


def python_roots() -> list[str | Path]:
    """Where hand-written Python is; mypy refuses a folder without any."""
    folders = ("server", "plugins/python", "clients/python", "tools", "tests", "bench")
    return [folder for folder in folders if any((ROOT / folder).rglob("*.py"))]


def tool(name: str, *arguments: str) -> list[str | Path]:
    return [sys.executable, ROOT / "tools" / f"{name}.py", *arguments]


CHECKS = (
    Check("ruff: no finding", [BIN / "ruff", "check", "--quiet", "--output-format=concise", "."]),
    Check("ruff: formatted", [BIN / "ruff", "format", "--check", "--quiet", "."]),
    Check("mypy: strict types", [BIN / "mypy", "--no-error-summary", *python_roots()]),
    Check("imports: follow the architecture", tool("check_imports")),
    Check("buf: lint", [BIN / "buf", "lint"]),
    Check("buf: formatted", [BIN / "buf", "format", "--diff", "--exit-code"]),
    Check("contract: every RPC has its error table", tool("check_contract")),
    Check("contract: the committed image is current", tool("golden", "--check")),
    Check("generated: code and pages are current", tool("proto", "--check")),
    Check("sizes: no file over 500 lines, no function over 60", tool("check_sizes")),
    Check("addresses: no registry host, no path of one machine", tool("check_addresses")),
)


def run(check: Check) -> bool:
    began = time.monotonic()
    done = subprocess.run(
        check.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    passed = done.returncode == 0
    print(f"{'ok  ' if passed else 'FAIL'} {check.name} ({time.monotonic() - began:.1f} s)")
    for line in done.stdout.strip().splitlines():
        print(f"       {line}")
    sys.stdout.flush()
    return passed


def main(words: Sequence[str]) -> int:
    chosen = [c for c in CHECKS if not words or any(word in c.name for word in words)]
    if not chosen:
        print(
            f"no check is called {' or '.join(words)}; there are: {', '.join(c.name for c in CHECKS)}"
        )
        return 2
    failed = [check.name for check in chosen if not run(check)]
    if failed:
        print(f"{len(failed)} of {len(chosen)} checks failed: {'; '.join(failed)}")
        return 1
    print(f"all {len(chosen)} checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
