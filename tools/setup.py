#!/usr/bin/env python3
"""Makes an environment match its lock, whatever state it was left in. Standard library only.

    tools/setup.py            .venv from requirements.lock, with the project in it (editable)
    tools/setup.py --proto    build/proto-venv from requirements-proto.lock, for the code generator
    tools/setup.py --bench    build/bench-venv from bench/requirements.lock, for the baselines of benchmarks

Nothing to do: returns at once. Otherwise the environment is made anew, because an environment that was
left half-made or belongs to another lock is not worth repairing piece by piece. Its stamp is removed first
and written last, so a set-up that was killed at any point is noticed by the next call. One set-up runs at
a time: the lock file is inherited by pip, so it stays held while a pip of a killed set-up still writes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "sagentry-setup.json"

FIRST = ("setuptools", "wheel", "packaging")
"""What builds a source distribution of the lock. Installed first, since the lock pins it and an isolated
build would fetch whatever is newest."""

APT_ADVICE = "install the Debian package python3-venv, or a whole Python of 3.11 or newer"


@dataclass(frozen=True)
class Environment:
    """What is to be made."""

    venv: Path
    lock: Path
    project: bool
    """Whether the project itself is installed into it."""


PROJECT = Environment(ROOT / ".venv", ROOT / "requirements.lock", project=True)

OTHERS = {
    "proto": Environment(
        ROOT / "build" / "proto-venv", ROOT / "requirements-proto.lock", project=False
    ),
    "bench": Environment(
        ROOT / "build" / "bench-venv", ROOT / "bench/requirements.lock", project=False
    ),
}
"""Environments beside the project's own, by the option that asks for them."""


class SetupError(Exception):
    """The set-up cannot go on; the message says what to do."""


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Waits for any other set-up of this environment; yields the descriptor that children must inherit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running, waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def wanted(environment: Environment) -> dict[str, str]:
    """What the stamp of a finished environment says."""
    packages = hashlib.sha256()
    for part in (
        environment.lock.read_bytes(),
        Path(__file__).read_bytes(),
        f"{sys.version} {sys.base_prefix} {environment.venv}".encode(),
    ):
        packages.update(hashlib.sha256(part).digest())
    stamp = {"packages": packages.hexdigest()}
    if environment.project:
        metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        relevant = [metadata["build-system"], metadata["project"], metadata["tool"]["hatch"]]
        text = json.dumps(relevant, sort_keys=True)
        stamp["project"] = hashlib.sha256(text.encode()).hexdigest()
    return stamp


def found(environment: Environment) -> Mapping[str, str]:
    """The stamp of what is there; empty if it is not whole."""
    try:
        stamp = json.loads((environment.venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(stamp, dict) or not (environment.venv / "bin" / "python").exists():
        return {}
    return stamp


def write_stamp(environment: Environment, stamp: Mapping[str, str]) -> None:
    temporary = environment.venv / (STAMP + ".tmp")
    temporary.write_text(json.dumps(stamp), encoding="utf-8")
    temporary.replace(environment.venv / STAMP)


def run(command: Sequence[str | Path], log: Path, lock_fd: int) -> None:
    """Runs a step; its output goes to the log, whose end is shown when it fails."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(map(str, command))}\n".encode())
        output.flush()
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock_fd,),
            cwd=ROOT,
            check=False,
        )
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join(lines[-25:]), file=sys.stderr)
        step = " ".join(map(str, command[:4]))
        raise SetupError(f"'{step} …' failed with {done.returncode}; all of its output: {log}")


def has_venv() -> bool:
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def ensure_venv_module(log: Path, lock_fd: int) -> None:
    """Debian splits venv's ensurepip into a package of its own; root gets it installed."""
    if has_venv():
        return
    if os.environ.get("SAGENTRY_APT") == "0":
        raise SetupError(f"no venv in {sys.executable} and SAGENTRY_APT=0: {APT_ADVICE}")
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        raise SetupError(f"no venv in {sys.executable}: {APT_ADVICE}")
    say("installing the Debian package python3-venv (SAGENTRY_APT=0 forbids it)")
    os.environ.setdefault("DEBIAN_FRONTEND", "noninteractive")
    install = [apt, "install", "-y", "--no-install-recommends", "python3-venv"]
    try:
        run(install, log, lock_fd)
    except SetupError:
        run([apt, "update"], log, lock_fd)
        run(install, log, lock_fd)
    if not has_venv():
        raise SetupError(f"still no venv in {sys.executable}: {APT_ADVICE}")


def blocks(lock: Path, names: Sequence[str]) -> str:
    """The entries of a lock for some packages, with their hashes."""
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"))
    return "".join(entry for entry in entries if entry.split("==")[0].lower() in names)


def pip_install(environment: Environment) -> list[str | Path]:
    return [environment.venv / "bin" / "python", "-m", "pip", "install", "--no-input"]


def install_packages(environment: Environment, log: Path, lock_fd: int) -> None:
    """Makes the environment anew with what the lock names and nothing else."""
    if environment.venv.exists():
        shutil.rmtree(environment.venv)
    run([sys.executable, "-m", "venv", environment.venv], log, lock_fd)
    pip = pip_install(environment)
    first = log.with_suffix(".first.txt")
    first.write_text(blocks(environment.lock, FIRST), encoding="utf-8")
    run([*pip, "--require-hashes", "--no-deps", "-r", first], log, lock_fd)
    unisolated = [*pip, "--require-hashes", "--no-deps", "--no-build-isolation"]
    run([*unisolated, "-r", environment.lock], log, lock_fd)


def install_project(environment: Environment, log: Path, lock_fd: int) -> None:
    pip = pip_install(environment)
    run([*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT], log, lock_fd)


def make(environment: Environment) -> None:
    want = wanted(environment)
    if found(environment) == want:
        return
    name = environment.venv.name.lstrip(".")
    log = ROOT / "build" / f"setup-{name}.log"
    with exclusive(ROOT / "build" / f"setup-{name}.lock") as lock_fd:
        have = found(environment)
        if have == want:
            return
        began = time.monotonic()
        log.write_bytes(b"")
        (environment.venv / STAMP).unlink(missing_ok=True)
        if have.get("packages") != want["packages"]:
            ensure_venv_module(log, lock_fd)
            shown, seen = environment.venv.relative_to(ROOT), log.relative_to(ROOT)
            say(f"making {shown} from {environment.lock.name}, a minute or two (log: {seen})")
            install_packages(environment, log, lock_fd)
        if environment.project:
            install_project(environment, log, lock_fd)
        write_stamp(environment, want)
        say(f"done in {time.monotonic() - began:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    for name, environment in OTHERS.items():
        which.add_argument(
            f"--{name}",
            dest="environment",
            action="store_const",
            const=environment,
            default=PROJECT,
        )
    environment = parser.parse_args().environment
    try:
        make(environment)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next call starts over")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
