"""The commands of the troubleshooting page, one after the other, against a real server and a real store."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.markdown import Command, commands
from tests.support.repository import ROOT
from tests.support.serve import serving, wait_healthy
from tests.support.servers import short_folder

PAGE = ROOT / "docs" / "troubleshooting.md"
GRPCURL = Path(sys.executable).with_name("grpcurl")

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.skipif(
        not GRPCURL.exists(), reason="the grpcurl package has no binary for this platform"
    ),
]


@contextlib.asynccontextmanager
async def store(folder: Path) -> AsyncIterator[str]:
    """A store that somebody has started by hand; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sagentry.plugins.sql"),
        *("--database", str(folder / "by-hand.db"), "--endpoint", address),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await asyncio.to_thread(wait_healthy, address)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def output(command: Command, server: str, plugin: str) -> str:
    """What a command prints; the one that follows a stream ends by its own deadline."""
    words = [
        {"localhost:7433": server, "$STORE": plugin}.get(word, word)
        for word in shlex.split(command.line)[1:]
    ]
    process = await asyncio.create_subprocess_exec(
        *(str(GRPCURL), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0 or "DeadlineExceeded" in err.decode(), err.decode()
    return out.decode()


def pattern(line: str) -> str:
    """Versions of grpcurl differ in how they write names: runId, run_id."""
    escaped = re.escape(line.strip()).replace("…", ".*")
    return re.sub(r"([a-z])([A-Z])", r"\1_?\2", escaped)


async def test_every_command_of_the_page_prints_what_it_shows() -> None:
    found = [one for one in commands(PAGE) if one.line.startswith("grpcurl ")]
    with (
        short_folder() as folder,
        serving(folder, "--listen", "127.0.0.1:0") as (_, [server]),
    ):
        await asyncio.to_thread(wait_healthy, server, "plugin/store")
        async with store(folder) as plugin:
            for command in found:
                printed = await output(command, server, plugin)
                wanted = r"[\s\S]*".join(pattern(line) for line in command.output)
                assert re.search(wanted, printed, re.IGNORECASE), (command.line, printed)

    assert len(found) == 12
