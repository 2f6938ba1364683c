"""The real server as a process: started, killed, started again on the same data folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from sagentry.api.agent.v1 import agent_pb2, agent_service_pb2
from sagentry.api.type.v1 import display_pb2
from sagentry.client import Client, ScopedClient

FOREVER = timedelta(seconds=30)
ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = Path(__file__).parent / "packages"


class RealServer:
    """One server after another on one folder.

    Args:
        folder: Its folder; short, because a socket is in it.
        script: The scripted model's file, as data.
        tools: Tools of the default profile.
        store: Target of the store plugin; None launches the SQL store.
        more: Further settings.
        environment: Further environment variables.
    """

    def __init__(
        self,
        folder: Path,
        script: list[dict[str, Any]],
        *,
        tools: tuple[str, ...] = (),
        store: str | None = None,
        more: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.database = folder / "store.db"
        self._environment = environment or {}
        self._paths: list[str] = []
        (folder / "script.yaml").write_text(yaml.safe_dump({"version": 1, "answers": script}))
        if store is None:
            command = [
                sys.executable,
                "-m",
                "sagentry.plugins.sql",
                "--database",
                str(self.database),
            ]
            store = "exec:" + shlex.join(command)
        settings = {
            "data_dir": str(folder / "data"),
            "listen": [f"unix:{folder}/s.sock"],
            "plugins": {
                "store": {
                    "target": store,
                    "contracts": ["agent_persistence", "display_message_persistence"],
                }
            },
            "profiles": {
                "default": {"model": f"script:{folder}/script.yaml", "tools": list(tools)}
            },
            **(more or {}),
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        self.process: asyncio.subprocess.Process | None = None
        self.calls_seen: list[str] = []
        self.address = ""
        self._clients = contextlib.AsyncExitStack()

    async def start(self) -> ScopedClient:
        """Starts the server and returns a client of the tenant `acme`."""
        log = (self.folder / "log").open("ab")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sagentry.server",
            "--config",
            str(self.folder / "config.yaml"),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env={
                **os.environ,  # noqa: TID251 - passed on
                "PYTHONPATH": os.pathsep.join([*self._paths, str(PACKAGES), str(ROOT)]),
                "SAGENTRY_TEST_FOLDER": str(self.folder),
                **self._environment,
            },
        )
        log.close()
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            line = await self.process.stdout.readline()
        assert line.startswith(b"sagentry: ready"), (self.folder / "log").read_text()[-3000:]
        self.address = line.decode().removeprefix("sagentry: ready on ").strip()
        client = Client.connect(self.address)
        await self._clients.enter_async_context(client)
        return client.scope("acme")

    async def kill(self) -> None:
        """Kills the server as a power cut would, its store with it."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ends the server as an operator would; returns its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        async with asyncio.timeout(60):
            code = await process.wait()
        await self._clients.aclose()
        return code

    async def close(self) -> None:
        """Ends what runs."""
        self.calls_seen = self.calls()
        if self.process is not None:
            await self._end(signal.SIGKILL)

    # --- what it leaves

    def touch(self, name: str) -> None:
        """Makes a file that the model or a tool waits for."""
        (self.folder / name).touch()

    async def until_exists(self, name: str) -> None:
        """Returns when another process has made a file."""

        async def made() -> bool:
            return (self.folder / name).exists()

        await until(made)

    def search_first(self, folder: Path) -> None:
        """Puts a folder in front of the module search path of all processes."""
        self._paths.insert(0, str(folder))

    def use_holding_store(self) -> None:
        """Configures the store that can be held between its commit and its answer."""
        program = [sys.executable, "-m", "tests.support.plugins.holding_store"]
        command = shlex.join([*program, str(self.database), str(self.folder)])
        self.configure(
            lambda settings: settings["plugins"]["store"].update(target=f"exec:{command}")
        )

    def add_plugin(self, name: str, target: str, contract: str) -> None:
        """Configures one more plugin, or another one of that name."""
        plugin = {"target": target, "contracts": [contract]}
        self.configure(lambda settings: settings["plugins"].update({name: plugin}))

    def listen_on_tcp(self) -> None:
        """Configures the server to listen on a port that the system chooses."""
        self.configure(lambda settings: settings.update(listen=["127.0.0.1:0"]))

    @contextlib.asynccontextmanager
    async def store_over_tcp(self) -> AsyncIterator[None]:
        """Runs the SQL store as a process of its own on a port, and configures it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = ["--database", str(self.database), "--endpoint", address]
        store = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sagentry.plugins.sql",
            *words,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.configure(
            lambda settings: settings["plugins"]["store"].update(target=f"dns:///{address}")
        )
        try:
            yield
        finally:
            store.terminate()
            await store.wait()

    def configure(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the configuration file."""
        file = self.folder / "config.yaml"
        settings = yaml.safe_load(file.read_text())
        change(settings)
        file.write_text(yaml.safe_dump(settings))

    def kill_store(self) -> None:
        """Kills the store's process; the server launches another."""
        needle = f"--database\0{self.database}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if needle in command and b"launcher.py" not in command:
                os.kill(int(entry.name), signal.SIGKILL)

    def calls(self) -> list[str]:
        """Names of the tools that really ran, in order."""
        file = self.folder / "calls"
        return file.read_text().split() if file.exists() else []

    def resident(self) -> int:
        """Bytes of memory that the server's process takes."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def rows_in_database(self) -> int:
        """How many rows the store's file has."""
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            (count,) = connection.execute("SELECT COUNT(*) FROM display_messages").fetchone()
        return int(count)


@contextlib.asynccontextmanager
async def real_server(script: list[dict[str, Any]], **options: Any) -> AsyncIterator[RealServer]:
    """A server that is not started yet, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="sgs-"))
    server = RealServer(folder, script, **options)
    try:
        yield server
    finally:
        await server.close()
        await removed(folder)


async def removed(folder: Path) -> None:
    """Removes a folder in which a dying store may still make files."""
    async with asyncio.timeout(60):
        while await asyncio.to_thread(folder.exists):
            shutil.rmtree(folder, ignore_errors=True)
            await asyncio.sleep(0)


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = 60) -> None:
    """Returns when something that other processes do is so; they tell nobody."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def tool_statuses(scope: ScopedClient, agent: str = "a") -> dict[str, str]:
    """The status of each tool call's row, by the tool's name."""
    name = display_pb2.ToolStatus.Name
    return {
        row.content.tool_call.name: name(row.tool_status).removeprefix("TOOL_STATUS_").lower()
        for row in await rows(scope, agent)
        if row.content.HasField("tool_call")
    }


async def tool_results(
    scope: ScopedClient, agent: str = "a"
) -> dict[str, display_pb2.ToolResultContent]:
    """The shown results of tool calls, by the tool's name."""
    return {
        row.content.tool_result.name: row.content.tool_result
        for row in await rows(scope, agent)
        if row.content.HasField("tool_result")
    }


async def ended(
    scope: ScopedClient, run_id: str, agent: str = "a"
) -> agent_service_pb2.GetRunResponse:
    """Waits for a run's end."""
    reply = await scope.get_run(agent, run_id, wait=FOREVER)
    assert reply.run.phase == agent_pb2.RUN_PHASE_ENDED, reply
    return reply


async def rows(scope: ScopedClient, agent: str = "a") -> list[display_pb2.DisplayMessage]:
    """All rows of a conversation, read back through the server from its store."""
    return [row async for row in scope.list_display_messages(agent)]


def said(row: display_pb2.DisplayMessage) -> str:
    """The text of a row, whatever its kind."""
    content = row.content
    body: Any = getattr(content, content.WhichOneof("body") or "text")
    return str(getattr(body, "text", ""))


async def state(scope: ScopedClient, agent: str = "a") -> dict[str, Any]:
    """The agent's state."""
    reply = await scope.get_state(agent)
    found: dict[str, Any] = json.loads(reply.state.json)
    return found


def texts(found: dict[str, Any], role: str) -> list[str]:
    """Texts of the state's messages of a role."""
    return [
        "".join(part.get("text", "") for part in message["parts"])
        for message in found.get("messages", [])
        if message["role"] == role
    ]
