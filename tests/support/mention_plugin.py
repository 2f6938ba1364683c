"""The mention plugin: its target, and as a process that a test kills and starts again."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path


def mention_command(folder: Path, *options: str) -> list[str]:
    """Returns the command that serves a folder."""
    return [sys.executable, "-m", "sagentry.plugins.mention", "--folder", str(folder), *options]


def mention_target(folder: Path, *options: str) -> str:
    """Returns the target that launches the plugin on that folder."""
    return f"exec:{shlex.join(mention_command(folder, *options))}"


class MentionProcess:
    """The plugin on a Unix socket.

    Args:
        folder: The documents.
        socket: Where it listens.
    """

    def __init__(self, folder: Path, socket: Path) -> None:
        self._command = mention_command(folder, "--endpoint", f"unix:{socket}")
        self.target = f"unix:{socket}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it serves."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        async with asyncio.timeout(60):
            line = await self._process.stderr.readline()
        assert b" serves " in line, line

    async def kill(self) -> None:
        """Kills it, if it runs, as a crash would."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            await process.communicate()
