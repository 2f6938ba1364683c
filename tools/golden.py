#!/usr/bin/env python3
"""Keeps tests/golden/contract.binpb, the compiled contract that changes are measured against.

    tools/golden.py            reports what breaks against the committed image, then writes the new one
    tools/golden.py --check    the same report; exit 1 if the image is not what the protos say

While v1 is not frozen a breaking change is allowed when the same commit updates this image, the golden
bytes and CHANGELOG.md. The report says what readers of the change have to know; it never fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from contract import buf

ROOT = Path(__file__).resolve().parent.parent
IMAGE = Path("tests/golden/contract.binpb")


def build(target: Path) -> bytes:
    """The image of the protos as they are, without comments and positions."""
    buf("build", ROOT / "protos", "--exclude-source-info", "-o", target)
    return target.read_bytes()


def committed() -> bytes | None:
    """The image at HEAD; nothing before the first commit of one, or outside a repository."""
    shown = ["git", "show", f"HEAD:{IMAGE}"]
    done = subprocess.run(shown, cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def report(folder: Path) -> None:
    """Prints what a user of the image at HEAD would notice."""
    before = committed()
    if before is None:
        print("no image at HEAD to compare with")
        return
    against = folder / "before.binpb"
    against.write_bytes(before)
    program = str(Path(sys.executable).with_name("buf"))
    command = [program, "breaking", "protos", "--against", str(against)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if lines:
        print(f"breaking changes since HEAD ({len(lines)}; a report only, v1 is not frozen):")
        print("\n".join(f"  {line}" for line in lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="sagentry-golden-") as name:
        current = build(Path(name) / "contract.binpb")
        report(Path(name))
    path = ROOT / IMAGE
    if path.exists() and path.read_bytes() == current:
        return 0
    if check:
        print(
            f"{IMAGE} is not the contract: run `make golden`, add a line to CHANGELOG.md, commit both"
        )
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(current)
    print(f"wrote {IMAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
