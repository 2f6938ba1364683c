"""The environment makes itself, whatever state it was left in.

With a copy of the tool and a lock of one small package, so that each set-up takes seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT, TOOLS

LOCK = "requirements-proto.lock"
VENV = "build/proto-venv"


def entry(package: str) -> str:
    """The entry of the real lock for a package, with its hashes."""
    entries = re.split(
        r"(?m)^(?=[A-Za-z0-9])", (ROOT / "requirements.lock").read_text(encoding="utf-8")
    )
    return next(text for text in entries if text.startswith(f"{package}=="))


class Checkout:
    """A folder with the set-up tool and a small lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tools").mkdir()
        shutil.copy(TOOLS / "setup.py", root / "tools")
        self.lock("iniconfig")

    def lock(self, *packages: str) -> None:
        text = "".join(entry(package) for package in ("setuptools", *packages))
        (self.root / LOCK).write_text(text, encoding="utf-8")

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.root / "tools" / "setup.py", "--proto"],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def has(self, *modules: str) -> bool:
        python = self.root / VENV / "bin" / "python"
        command = [str(python), "-c", f"import {', '.join(modules)}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    yield Checkout(tmp_path)
    shutil.rmtree(tmp_path / VENV, ignore_errors=True)


def finish(setup: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for a set-up; its exit code and what it said."""
    _, said = setup.communicate(timeout=50)
    return setup.returncode, said


def wait_for(path: Path, setup: subprocess.Popen[str]) -> None:
    """Returns once a file of the environment is there, while the set-up still runs."""
    while not path.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            setup.wait(timeout=0.02)


def test_setup_killed_with_half_an_environment_is_repaired_by_the_next_call(
    checkout: Checkout,
) -> None:
    killed = checkout.start()
    wait_for(checkout.root / VENV / "pyvenv.cfg", killed)
    killed.kill()
    killed.communicate()

    code, said = finish(checkout.start())

    assert (code, checkout.has("iniconfig")) == (0, True), said


def test_two_setups_at_once_make_the_environment_once(checkout: Checkout) -> None:
    first, second = checkout.start(), checkout.start()

    outcomes = [finish(first), finish(second)]

    assert [code for code, _ in outcomes] == [0, 0]
    assert "".join(said for _, said in outcomes).count("making") == 1
    assert checkout.has("iniconfig")


def test_changed_lock_makes_the_environment_anew(checkout: Checkout) -> None:
    finish(checkout.start())
    checkout.lock("pluggy")

    code, said = finish(checkout.start())

    assert (code, checkout.has("pluggy"), checkout.has("iniconfig")) == (0, True, False), said


def test_package_with_another_hash_is_refused(checkout: Checkout) -> None:
    lock = checkout.root / LOCK
    lock.write_text(re.sub(r"sha256:\w{8}", "sha256:00000000", lock.read_text(encoding="utf-8")))

    code, said = finish(checkout.start())

    assert code == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said


def test_python_without_venv_gets_one_line_of_advice(checkout: Checkout) -> None:
    (checkout.root / "ensurepip.py").write_text("raise ImportError\n", encoding="utf-8")

    code, said = finish(checkout.start(PYTHONPATH=str(checkout.root), SAGENTRY_APT="0"))

    assert code == 1
    assert said.splitlines()[-1].startswith("setup: error: no venv in ")
    assert "install the Debian package python3-venv" in said
