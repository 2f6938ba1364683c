#!/usr/bin/env python3
"""Generates what is made from the protos and the settings: Python code and pages of the docs.

    tools/proto.py            writes both into the tree
    tools/proto.py --check    makes them elsewhere and names every file that differs; exit 1 if one does

The code comes from the pinned generator in build/proto-venv (`tools/setup.py --proto`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import contract_docs
import settings_docs
from contract import load

ROOT = Path(__file__).resolve().parent.parent
PROTOS = Path("protos")
DOCS = Path("docs/contract")
SETTINGS_PAGE = Path("docs/configuration.md")
GENERATED = "*_pb2*.py*"
PLUGINS = ("python", "grpc_python", "mypy", "mypy_grpc")


def generate_code(target: Path) -> None:
    """Writes messages, stubs and types of all protos below `target`, which mirrors protos/."""
    setup = ROOT / "tools" / "setup.py"
    subprocess.run([sys.executable, str(setup), "--proto"], check=True)
    scripts = ROOT / "build" / "proto-venv" / "bin"
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / PROTOS).rglob("*.proto"))
    command: list[str | Path] = [
        scripts / "python",
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={PROTOS}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        *(f"--{plugin}_out={target}" for plugin in PLUGINS),
        *sources,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        # mypy-protobuf reports every file that it writes on stderr, which matters to nobody on success.
        raise SystemExit(done.stderr.strip())


def generate(target: Path) -> None:
    """Writes everything that is generated below `target`, which mirrors the repository."""
    (target / PROTOS).mkdir(parents=True, exist_ok=True)
    generate_code(target / PROTOS)
    contract_docs.write(load(ROOT / PROTOS), target / DOCS)
    settings_docs.write(target / SETTINGS_PAGE)


def generated_files(root: Path) -> set[Path]:
    files = {*(root / PROTOS).rglob(GENERATED), *(root / DOCS).rglob("*.md")}
    files |= {path for path in [root / SETTINGS_PAGE] if path.exists()}
    return {path.relative_to(root) for path in files if "__pycache__" not in path.parts}


def differences(made: Path) -> list[str]:
    """One line for each file that is stale, missing or left over in the tree."""
    lines = []
    want, have = generated_files(made), generated_files(ROOT)
    for path in sorted(want | have):
        if path not in have:
            lines.append(f"{path}: missing")
        elif path not in want:
            lines.append(f"{path}: nothing makes it any more")
        elif (made / path).read_bytes() != (ROOT / path).read_bytes():
            lines.append(f"{path}: not what its source says")
    return lines


def check() -> int:
    with tempfile.TemporaryDirectory(prefix="sagentry-proto-") as folder:
        generate(Path(folder))
        lines = differences(Path(folder))
    if lines:
        print("\n".join(lines))
        print("run `make proto` and commit the result")
    return 1 if lines else 0


def write() -> int:
    with tempfile.TemporaryDirectory(prefix="sagentry-proto-") as folder:
        made = Path(folder)
        generate(made)
        changed = differences(made)
        want = generated_files(made)
        for stale in generated_files(ROOT) - want:
            (ROOT / stale).unlink()
        for path in want:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made / path, ROOT / path)
    print("\n".join(changed) if changed else "everything generated was current")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    return check() if parser.parse_args().check else write()


if __name__ == "__main__":
    sys.exit(main())
