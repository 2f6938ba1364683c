"""What a test needs of the machine beyond the project's own environment.

A missing tool skips the test and pytest prints which; under `SAGENTRY_REQUIRE` it fails instead, so that a
gate is never green because nothing ran. `SAGENTRY_REQUIRE=all`, or names: `SAGENTRY_REQUIRE=go,node`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping

import pytest

VERSION_ARGUMENT = {"go": "version"}
"""How a tool is asked for its version, where it is not `--version`."""


@functools.cache
def missing(tool: str) -> str:
    """Why a tool cannot be used, or nothing.

    Being on PATH is not enough: a version manager's shim is there and fails under another HOME. So the tool
    has to tell its version.
    """
    program = shutil.which(tool)
    if program is None:
        return f"{tool} is not installed"
    command = [program, VERSION_ARGUMENT.get(tool, "--version")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool} is installed and does not start: {error}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"{tool} is installed and does not work here: {said[0] if said else done.returncode}"
    return ""


def is_required(tool: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether the absence of a tool is a failure."""
    names = (environment or os.environ).get("SAGENTRY_REQUIRE", "").replace(",", " ").split()
    return "all" in names or tool in names


def require_tool(tool: str) -> None:
    """Skips the calling test without the tool; fails it where the tool is required."""
    reason = missing(tool)
    if not reason:
        return
    if is_required(tool):
        pytest.fail(f"{reason}, and SAGENTRY_REQUIRE asks for it", pytrace=False)
    pytest.skip(reason)
