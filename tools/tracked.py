"""The files that the checks look at: what git tracks, and what it would track."""

from __future__ import annotations

import fnmatch
import subprocess
from pathlib import Path

GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi", "*.pb.go")


def files(root: Path) -> list[Path]:
    """Paths relative to `root` of files that exist, tracked or new but not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    paths = (Path(name) for name in listed.split("\0") if name)
    return sorted({path for path in paths if (root / path).is_file()})


def is_generated(path: Path) -> bool:
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in GENERATED)


def text_of(path: Path) -> str | None:
    """The text of a file; nothing for a binary one."""
    content = path.read_bytes()
    if b"\0" in content:
        return None
    return content.decode("utf-8", errors="replace")
