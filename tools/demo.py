"""The demo: on a terminal a conversation with a fresh server, elsewhere a play with real processes.

The play: a server with its store and a preprocessor; a message that mentions a document; a run that books
a table and is killed with the server in mid-sentence; a new start that goes on. Then the transcript is read
through the store's plugin and from its database. The exit code is 0 only if all of it went as it should.

Everything is in a private folder and on Unix sockets, so any number may run at once. Nothing is left behind,
however it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as store_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2_grpc as store_grpc
from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.client import Client, Disconnected, Following, RowsRead, SagentryError, ScopedClient

ROOT = Path(__file__).resolve().parent.parent
FILES = Path(__file__).with_name("demo")
SAGENTRY = Path(sys.executable).with_name("sagentry")
PATIENCE = 60
"""Seconds until something that should happen is taken as never happening."""

AGENT = "evening"
CUT = "The table is booked. Now I write the invi"


FEWEST_ROWS = 12
"""What the play leaves behind at least: each message, each call, each result."""


class DemoError(Exception):
    """Something did not go as it should."""


def step(text: str) -> None:
    print(f"\ndemo: {text}", flush=True)


def require(is_so: bool, problem: str) -> None:  # noqa: FBT001 - as assert
    if not is_so:
        raise DemoError(problem)


class Server:
    """The server of the demo, in its folder.

    Args:
        folder: Where all of it is.
        files: Script, documents and tools.
    """

    def __init__(self, folder: Path, files: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder}/s.sock"
        self.database = folder / "store.db"
        self._log = folder / "log"
        self._process: subprocess.Popen[str] | None = None
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),  # noqa: S108 - the system's own default
            "TERM": os.environ.get("TERM", "dumb"),
            "PYTHONPATH": str(files / "packages"),
            "DEMO_FOLDER": str(folder),
            "SAGENTRY_SERVER": self.address,
        }

        def launched(module: str, *words: object) -> str:
            return "exec:" + shlex.join([sys.executable, "-m", module, *map(str, words)])

        settings = {
            "data_dir": str(folder / "data"),
            "listen": [self.address],
            "plugins": {
                "store": {
                    "target": launched("sagentry.plugins.sql", "--database", self.database),
                    "contracts": ["agent_persistence", "display_message_persistence"],
                },
                "mentions": {
                    "target": launched("sagentry.plugins.mention", "--folder", files / "documents"),
                    "contracts": ["message_preprocessor"],
                },
            },
            "profiles": {
                "default": {
                    "model": f"script:{files / 'script.yaml'}",
                    "tools": ["book_table", "send_invitation"],
                },
                "demo": {"model": "script:demo", "tools": ["current_time", "calculate"]},
            },
        }
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        """Starts the server and waits until it takes calls."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [SAGENTRY, "serve", "--config", self.folder / "config.yaml"],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None  # noqa: S101 - a pipe, two lines above
        line = self._process.stdout.readline()
        require(line.startswith("sagentry: ready on"), "the server did not start")
        print(line.replace(str(self.folder), "$DEMO"), end="", flush=True)

    def kill(self) -> None:
        """Kills it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as an operator would."""
        code = self._end(signal.SIGTERM)
        require(code == 0, f"the server ended with code {code}")

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None  # noqa: S101 - started before
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DemoError("the server did not end") from None
        assert process.stdout is not None  # noqa: S101 - as above
        process.stdout.close()
        return code

    def clean_up(self) -> None:
        """Ends it if it still runs."""
        if self._process is not None:
            with contextlib.suppress(DemoError):
                self.stop()

    def log(self) -> str:
        """Returns what it logged."""
        return self._log.read_text() if self._log.exists() else ""


# --- the play


async def play(server: Server) -> None:
    step("a server with a store and a preprocessor, launched by it")
    server.start()
    async with Client.connect(server.address) as client:
        scope = client.scope("acme")
        await scope.start_agent(AGENT)
        step("a message that mentions a document: the preprocessor gives it to the model")
        first = await say(scope, "When is it, says @Plan?")
        step("a run with two things to do: the table is booked, and then, in mid-sentence …")
        second = await say(scope, "Book the table and send the invitation.", until=CUT)
        await until_kept(scope, CUT)
    print("\n  … SIGKILL", flush=True)
    server.kill()
    step("a new start: the sentence is kept as far as it came, and the conversation goes on")
    server.start()
    async with Client.connect(server.address) as client:
        scope = client.scope("acme")
        third = await say(scope, "Go on.")
    step("the transcript, as the server reads it from its store")
    show_transcript(server)
    server.stop()
    step("the same, from the store's plugin and from its database")
    await compare(server, [first, second, third])
    print(
        "every message is there once, the table is booked once, the cut sentence is marked as cut"
    )
    require(not list(server.folder.rglob("*.sock")), "a socket was left")


async def say(scope: ScopedClient, text: str, *, until: str = "") -> str:
    """Says something and prints what the agent does, to the run's end or until it has said something.

    Returns the id of the accepted message.
    """
    print(f"> {text}", flush=True)
    reply = None
    seen = ""
    async with asyncio.timeout(PATIENCE), scope.follow(AGENT) as following:
        async for item in following:
            require(not isinstance(item, Disconnected), "the stream was cut")
            if isinstance(item, RowsRead) and item.is_complete and reply is None:
                # Everything from here on is seen.
                reply = await scope.add_message(AGENT, text)
            piece = told(item)
            seen += piece
            print(piece, end="", flush=True)
            if reply is None:
                continue
            run = following.view.runs.get(reply.run_id)
            if run is not None and run.end:
                require(run.end == agent_pb2.RUN_END_COMPLETED, f"the run failed: {run.error}")
                require(not until, f"the run ended without {until!r}")
                break
            if until and until in seen:
                break
    require(reply is not None, "the stream ended")
    return reply.message_id if reply else ""


def told(item: Following) -> str:
    """What is printed of an item."""
    match item:
        case pb.Delta():
            # Thinking is on a line of its own.
            is_signature = item.HasField("signature")
            return "\n" if is_signature else item.text.text
        case pb.Event() if item.HasField("message_completed"):
            is_model = item.message_completed.message.role == message_pb2.ROLE_ASSISTANT
            return "\n" if is_model else ""
        case pb.Event() if item.HasField("tool_call_updated"):
            return tool_line(item.tool_call_updated)
        case _:
            return ""


def tool_line(call: pb.ToolCallUpdated) -> str:
    if call.step != pb.TOOL_CALL_STEP_COMPLETED:
        return ""
    return f"  [{call.tool_info.name}: {call.tool_info.result}]\n"


async def until_kept(scope: ScopedClient, text: str) -> None:
    """Returns when a text would survive a crash: at most a quarter of a second later."""
    async with asyncio.timeout(PATIENCE):
        while text not in (await scope.get_state(AGENT)).state.json:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def show_transcript(server: Server) -> None:
    print(f"$ sagentry transcript {AGENT}", flush=True)
    done = subprocess.run(
        [SAGENTRY, "transcript", AGENT, "--tenant", "acme"],
        env=server.environment,
        check=False,
        timeout=PATIENCE,
    )
    require(done.returncode == 0, "the transcript could not be read")


# --- what is left of it


async def compare(server: Server, accepted: list[str]) -> None:
    told = await from_plugin(server)
    stored = from_database(server.database)
    require(len(told) >= FEWEST_ROWS, f"the plugin has only {len(told)} rows")
    require(
        [(row.position, row.message_id, kind_of(row), text_of(row)) for row in told] == stored,
        "plugin and database differ",
    )
    users = [row.message_id for row in told if row.type == display_pb2.DISPLAY_MESSAGE_TYPE_USER]
    for message_id in accepted:
        require(message_id in users, f"the accepted message {message_id} is lost")
    texts = [text_of(row) for row in told]
    for text in ("When is it, says @Plan?", "Book the table and send the invitation.", "Go on."):
        require(texts.count(text) == 1, f"{text!r} is there {texts.count(text)} times")
    require("Plan" in texts, "the mention has no chip")
    cut = [
        row for row in told if row.content.stop_reason == message_pb2.MESSAGE_STATUS_STREAM_ERROR
    ]
    require(
        [text_of(row) for row in cut] == [CUT],
        "the cut sentence is not shown as cut",
    )
    for name in ("bookings", "invitations"):
        lines = (server.folder / name).read_text().splitlines()
        require(len(lines) == 1, f"{name}: {len(lines)} instead of one")
    calls = [row for row in told if row.content.HasField("tool_call")]
    completed = display_pb2.TOOL_STATUS_COMPLETED
    require(
        [row.tool_status for row in calls] == [completed, completed], "a tool call is not completed"
    )


async def from_plugin(server: Server) -> list[display_pb2.DisplayMessage]:
    """Starts the store alone, and reads all rows as a server would."""
    endpoint = f"unix:{server.folder}/store.sock"
    store = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sagentry.plugins.sql", "--database", str(server.database)),
        *("--endpoint", endpoint),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        request = store_pb.ListDisplayMessagesRequest(page_size=100)
        request.context.request_id = "demo"
        request.context.conversation_id = AGENT
        request.context.scope.scoped.tenant = "acme"
        request.order = store_pb.LIST_ORDER_POSITION_ASCENDING
        import grpc.aio  # noqa: PLC0415 - only here

        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub = store_grpc.DisplayMessagePersistenceServiceStub(channel)
            page = await stub.ListDisplayMessages(request, wait_for_ready=True, timeout=PATIENCE)
        return list(page.page.display_messages)
    finally:
        store.terminate()
        await store.wait()


def from_database(database: Path) -> list[tuple[int, str, str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT position, message_id, content_kind, content FROM display_messages"
            " ORDER BY position"
        ).fetchall()
    return [
        (position, message_id, kind, text_in(json.loads(content)[kind]))
        for position, message_id, kind, content in rows
    ]


def kind_of(row: display_pb2.DisplayMessage) -> str:
    return row.content.WhichOneof("body") or ""


def text_of(row: display_pb2.DisplayMessage) -> str:
    body = getattr(row.content, kind_of(row))
    return str(getattr(body, "text", "") or getattr(body, "name", ""))


def text_in(body: dict[str, Any]) -> str:
    return str(body.get("text", "") or body.get("name", ""))


# --- how it is called


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="sagentry-demo.")
    if len(folder) > 80:  # noqa: PLR2004 - too long for the sockets in it
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="sagentry-demo.", dir="/tmp")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


def talk(server: Server) -> None:
    server.start()
    subprocess.run([SAGENTRY, "chat", "--profile", "demo"], env=server.environment, check=False)
    server.stop()


def end(_number: int, _frame: object) -> NoReturn:
    sys.exit(128 + _number)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Plays Sagentry; on a terminal, lets you talk with it."
    )
    parser.add_argument("--play", action="store_true", help="play on a terminal, too")
    parser.add_argument("--files", type=Path, default=FILES, help="script, documents and tools")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with private_folder() as folder:
        server = Server(folder, given.files.resolve())
        try:
            if is_terminal and not given.play:
                talk(server)
                return 0
            asyncio.run(play(server))
        except (DemoError, SagentryError, TimeoutError, OSError) as error:
            print(f"demo: error: {str(error) or 'nothing happened in time'}", file=sys.stderr)
            print(
                "".join(f"  server: {line}\n" for line in server.log().splitlines()),
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            server.clean_up()
    step("all of it agreed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
