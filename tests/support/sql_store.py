"""The SQL store as a child process, as the server launches it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def store_target(database: Path, *options: str, module: str = "sagentry.plugins.sql") -> str:
    """Returns the target that launches a store on that database."""
    words = [sys.executable, "-m", module, "--database", str(database), *options]
    return f"exec:{shlex.join(words)}"
