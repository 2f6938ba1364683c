"""Tools for tests of the real server: each writes a line per call, so a test can count what really ran."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

FOLDER = Path(os.environ.get("SAGENTRY_TEST_FOLDER", "."))  # noqa: TID251 - how a test names it


def _note(name: str) -> None:
    with (FOLDER / "calls").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def quick(text: str = "") -> str:
    """Answers at once.

    Args:
        text: What to say.
    """
    _note("quick")
    return text or "quick done"


async def slow() -> str:
    """Answers when the file `go` is there."""
    _note("slow")
    while not (FOLDER / "go").exists():  # noqa: ASYNC110 - the test is another process
        await asyncio.sleep(0.02)
    return "slow done"


def failing() -> str:
    """Breaks."""
    _note("failing")
    raise RuntimeError("a secret of the tool")


async def stubborn() -> str:
    """Ignores that it is cancelled."""
    _note("stubborn")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue
