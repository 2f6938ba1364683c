"""What people do wrong most often, each answered by one clear error that says what to do.

The same table for the command line is in test_command_line.py, that for models in test_providers.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.client import Client, InvalidArgumentError, LimitExceededError, NotFoundError
from tests.support.real_server import RealServer, ended, real_server, rows, state
from tests.support.serve import SAGENTRY, serving
from tests.support.servers import short_folder

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[RealServer]:
    async with real_server([{"repeat": True, "steps": [{"text": "ok"}]}]) as server:
        scope = await server.start()
        reply = await scope.add_message("a", "hello")
        await ended(scope, reply.run_id)
        yield server


async def test_a_call_without_a_scope_is_told_to_set_one(running: RealServer) -> None:
    async with Client.connect(running.address) as client:
        nobody = client.unscoped()
        nobody._scope.Clear()  # noqa: SLF001 - what no client of ours sends
        with pytest.raises(InvalidArgumentError) as refused:
            await nobody.get_agent("a")

    assert refused.value.reason == "SCOPE_REQUIRED"
    assert "scope" in refused.value.message


@pytest.mark.parametrize(("tenant", "agent"), [("other", "a"), ("acme", "nobody")])
async def test_agents_of_others_and_unknown_ones_are_not_found(
    running: RealServer, tenant: str, agent: str
) -> None:
    async with Client.connect(running.address) as client:
        scope = client.scope(tenant)
        with pytest.raises(NotFoundError) as refused:
            await scope.get_agent(agent)
        listed = [one.agent_id async for one in scope.list_agents()]
        shown = [row async for row in scope.list_display_messages(agent)]

    assert refused.value.reason == "AGENT_NOT_FOUND"
    assert agent not in listed
    assert shown == []


@pytest.mark.parametrize(
    ("text", "options", "error", "reason", "words"),
    [
        ("", None, InvalidArgumentError, "FIELD_INVALID", "message.parts[0].text.text"),
        ("x" * (2**20 + 1), None, None, "MESSAGE_TOO_LARGE", "1048576"),
        ("x", pb.StartOptions(profile="p"), InvalidArgumentError, "PROFILE_UNKNOWN", "profile p"),
    ],
    ids=["empty", "too large", "unknown profile"],
)
async def test_a_message_that_cannot_be_taken_changes_nothing(
    running: RealServer, *, text: str, options: Any, error: Any, reason: str, words: str
) -> None:
    agent = "a" if options is None else "new"
    async with Client.connect(running.address) as client:
        scope = client.scope("acme")
        before = await state(scope, "a")
        with pytest.raises(error or (InvalidArgumentError, LimitExceededError)) as refused:
            await scope.add_message(agent, text, options=options)
        assert await state(scope, "a") == before
        count = len(await rows(scope, "a"))

    assert refused.value.reason == reason
    assert words in f"{refused.value.message} {refused.value.metadata}"
    assert count == 2


def serve(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Starts a server that should not start."""
    return subprocess.run(
        [SAGENTRY, "serve", *map(str, words)],
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one complaint of a server that did not start."""
    assert "Traceback" not in done.stderr
    [line] = [one for one in done.stderr.splitlines() if one.startswith("sagentry: ")]
    return line


@pytest.mark.parametrize(
    ("yaml", "problem"),
    [
        ("listen: [\n", "sagentry.yaml:2: malformed YAML"),
        ("log_level: info\ndrain_timeot: 3s\n", "sagentry.yaml:2: unknown key 'drain_timeot'"),
        ("profiles:\n  default:\n    modell: x\n", "sagentry.yaml:3: unknown key"),
    ],
)
def test_a_configuration_that_is_wrong_is_named_with_its_line(yaml: str, problem: str) -> None:
    with short_folder() as folder:
        (folder / "sagentry.yaml").write_text(yaml)
        done = serve(folder, "--config", "sagentry.yaml")

    assert done.returncode == 2
    assert problem in said(done)


def test_a_port_that_is_in_use_is_named() -> None:
    with short_folder() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve(folder, "--data-dir", folder / "d", "--listen", f"127.0.0.1:{port}")

    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in said(done)


def test_a_second_server_on_one_data_folder_is_refused() -> None:
    with short_folder() as folder, serving(folder, "--listen", f"unix:{folder}/s"):
        done = serve(folder, "--data-dir", folder / "data", "--listen", f"unix:{folder}/t")

    assert done.returncode == 1
    assert str(folder / "data") in said(done)


@pytest.mark.parametrize("place", ["/proc/sagentry", "file/data"])
def test_a_data_folder_that_cannot_be_made_is_named(place: str) -> None:
    with short_folder() as folder:
        (folder / "file").write_text("")
        done = serve(folder, "--data-dir", place, "--listen", f"unix:{folder}/s")

    assert done.returncode == 1
    assert place in said(done)
