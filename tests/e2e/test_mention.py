"""Mentions through the whole of it: client, server, preprocessor, store; and a preprocessor that dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sagentry.client import FailedPreconditionError, UnavailableError
from tests.support.real_server import RealServer, ended, real_server, rows, said, state, texts
from tests.support.serve import SAGENTRY

pytestmark = pytest.mark.timeout(120)

SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"last_user_text": {"regex": "the launch is on Friday"}},
        "repeat": True,
        "steps": [{"text": "On Friday."}],
    },
    {"repeat": True, "steps": [{"text": "I have not read that."}]},
]

QUICKLY = timedelta(seconds=2)


class Mentions:
    """The preprocessor as a process of its own, that can be killed and started again."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self._process: asyncio.subprocess.Process | None = None

    @property
    def target(self) -> str:
        return f"unix:{self._server.folder}/mentions.sock"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sagentry.plugins.mention"),
            *("--folder", str(self._server.folder / "documents"), "--endpoint", self.target),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@contextlib.asynccontextmanager
async def with_mentions() -> AsyncIterator[tuple[RealServer, Mentions]]:
    async with real_server(SCRIPT) as server:
        documents = server.folder / "documents"
        documents.mkdir()
        (documents / "Plan.md").write_text("the launch is on Friday")
        mentions = Mentions(server)
        server.add_plugin("mentions", mentions.target, "message_preprocessor")
        await mentions.start()
        try:
            yield server, mentions
        finally:
            await mentions.kill()


async def test_people_see_a_chip_and_the_model_reads_the_document() -> None:
    async with with_mentions() as (server, _):
        scope = await server.start()
        reply = await scope.add_message("a", "When is it, says @Plan?")
        await ended(scope, reply.run_id)
        shown = await rows(scope)
        found = await state(scope)

    assert [said(row) for row in shown] == ["When is it, says @Plan?", "", "On Friday."]
    assert shown[1].content.file_reference.name == "Plan"
    assert shown[1].content.file_reference.path == "Plan.md"
    assert "the launch is on Friday" in texts(found, "user")[0]


async def test_an_unknown_name_is_refused_and_nothing_is_kept_of_it() -> None:
    async with with_mentions() as (server, _):
        scope = await server.start()
        first = await scope.add_message("a", "hello")
        await ended(scope, first.run_id)
        before = await state(scope)
        with pytest.raises(FailedPreconditionError) as refused:
            await scope.add_message("a", "What says @Nobody?")
        after = await state(scope)
        shown = [said(row) for row in await rows(scope)]

    assert refused.value.reason == "MESSAGE_REJECTED"
    assert refused.value.user_message == "There is no document “Nobody”. There is: Plan."
    assert [field for field, _ in refused.value.violations] == ["parts[0].text.text"]
    assert after == before
    assert shown == ["hello", "I have not read that."]


async def test_a_killed_preprocessor_stops_new_messages_and_nothing_else() -> None:
    async with with_mentions() as (server, mentions):
        scope = await server.start()
        first = await scope.add_message("a", "hello")
        await ended(scope, first.run_id)
        before = await state(scope)
        await mentions.kill()
        with pytest.raises(UnavailableError) as refused:
            await scope.add_message("a", "When, says @Plan?", request_id="r-1", timeout=QUICKLY)
        assert await state(scope) == before
        shown = [said(row) for row in await rows(scope)]
        await mentions.start()
        reply = await scope.add_message("a", "When, says @Plan?", request_id="r-1")
        await ended(scope, reply.run_id)
        later = [said(row) for row in await rows(scope)]

    assert "mentions" in str(refused.value)
    assert refused.value.metadata["plugin"] == "mentions"
    assert shown == ["hello", "I have not read that."]
    assert later == [*shown, "When, says @Plan?", "", "On Friday."]


async def test_the_judge_finds_nothing_wrong(tmp_path: Path) -> None:
    command = shlex.join(
        [sys.executable, "-m", "sagentry.plugins.mention", "--folder", str(tmp_path)]
    )
    process = await asyncio.create_subprocess_exec(
        *(SAGENTRY, "plugin", "check", "--target", f"exec:{command}", "--format", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    summary = json.loads(out)["summary"]

    assert process.returncode == 0
    assert summary["passed"] > 10
    assert summary["failed"] == summary["skipped"] == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--folder", "nowhere"], "--folder nowhere: there is no such folder"),
        (["--folder", ".", "--max-bytes", "0"], "--max-bytes 0: must be at least 1"),
        (["--folder", "."], "SAGENTRY_PLUGIN_ENDPOINT"),
    ],
)
async def test_a_wrong_command_line_is_one_line(words: list[str], problem: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sagentry.plugins.mention", *words),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent,
        env={},
    )
    _, err = await process.communicate()

    assert process.returncode == 1
    assert problem in err.decode()
    assert len(err.decode().splitlines()) == 1
