"""The README's first conversation works as it stands there."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.real_server import real_server, rows, said

README = Path("README.md")
GRPCURL = Path(".venv/bin/grpcurl")


def commands() -> list[list[str]]:
    """The grpcurl commands of the README, in order."""
    text = README.read_text(encoding="utf-8")
    block = re.search(r"[Ww]ith nothing but `grpcurl`:\n\n```console\n(.*?)```", text, re.DOTALL)
    assert block is not None
    lines = block.group(1).replace("\\\n", " ").split("\n$ ")
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


def run(command: list[str]) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.skipif(
    not GRPCURL.exists(), reason="the grpcurl package has no binary for this platform"
)
@pytest.mark.timeout(180)
async def test_the_grpcurl_commands_of_the_readme_hold_a_conversation() -> None:
    """Somebody who only copies them must get an answer."""
    script = [{"repeat": True, "steps": [{"text": "It is noon."}]}]
    async with real_server(script) as server:
        server.listen_on_tcp()
        scope = await server.start()
        await scope.start_agent("order-17")
        add, follow = (
            [server.address if word == "127.0.0.1:7433" else word for word in command[1:]]
            for command in commands()
        )
        added = await asyncio.to_thread(run, [str(GRPCURL), *add])
        followed = await asyncio.to_thread(run, [str(GRPCURL), "-max-time", "5", *follow])
        shown = [said(row) for row in await rows(scope, "order-17")]

    assert re.search(r'"run_?[iI]d": "run-', added), added
    assert re.search(r'"caught_?[uU]p"', followed), followed
    assert shown == ["What time is it?", "It is noon."]
