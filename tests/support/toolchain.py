"""What a test needs of the machine beyond the project's own environment.

A missing tool skips the test and pytest prints which; under `SAGENTRY_REQUIRE` it fails instead, so that a
gate is never green because nothing ran. `SAGENTRY_REQUIRE=all`, or names: `SAGENTRY_REQUIRE=go,node`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.repository import ROOT

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


def built_with_go(module: Path, package: str) -> Path:
    """Returns a program that Go builds from pinned modules; skips the calling test without Go.

    It is kept in build/tools/ until its pins change.

    Args:
        module: Folder with the go.mod and go.sum that pin it.
        package: What to build, by import path.
    """
    require_tool("go")
    name = package.rpartition("/")[2]
    pins = b"".join((module / pin).read_bytes() for pin in ("go.mod", "go.sum"))
    program = ROOT / "build" / "tools" / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Two runs may build at once: each moves a whole program into place.
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    command = ["go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w"]
    done = subprocess.run(
        [*command, "-o", str(unfinished), package],
        cwd=module,
        env=os.environ | {"GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"go cannot build {package}:\n{done.stderr}", pytrace=False)
    for old in program.parent.glob(f"{name}-{'?' * 12}"):
        old.unlink(missing_ok=True)
    unfinished.replace(program)
    return program


def installed_by_npm(package: Path) -> Path:
    """Installs a package's dependencies as its lock says; skips the calling test without Node or npm.

    They lie beside the package, in node_modules, as its user has them, and stay until the lock changes.
    """
    require_tool("node")
    require_tool("npm")
    lock = hashlib.sha256((package / "package-lock.json").read_bytes()).hexdigest()
    stamp = package / "node_modules" / ".sagentry-lock"
    if not (stamp.exists() and stamp.read_text() == lock):
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"npm cannot install {package.name}:\n{done.stderr}", pytrace=False)
        stamp.write_text(lock)
    return package
