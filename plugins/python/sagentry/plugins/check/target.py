"""Reaches the plugin under judgement, and launches it first if the target is a command."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from sagentry.api.plugin.v1 import call_context_pb2, plugin_pb2, plugin_pb2_grpc
from sagentry.plugins.check.methods import GET_PLUGIN_INFO, PLUGIN
from sagentry.plugins.check.session import Session
from sagentry.plugins.sdk.environment import environment_with_endpoint

MAX_MESSAGE_BYTES = 32 * 1024 * 1024

_LAUNCH_SECONDS = 30.0
_STOP_SECONDS = 5.0
_KEPT_LINES = 5
_SHOWN_CHARACTERS = 300


class TargetError(Exception):
    """The target cannot be judged; the text is one line that says why."""


@asynccontextmanager
async def attached(
    target: str, *, asked: frozenset[str] = frozenset(), patience: float = 1.0
) -> AsyncIterator[Session]:
    """Connects, asks the plugin who it is, and yields what cases work with.

    Args:
        target: `unix:/path`, `host:port`, `dns:///host:port`, or `exec:command`. A command is
            started without a shell, told by SAGENTRY_PLUGIN_ENDPOINT to listen in a private
            folder, and ended with the block.
        asked: Full names of the contracts to judge; empty means all that are declared.
        patience: Factor of all deadlines.

    Raises:
        TargetError: if nothing can be reached there, or it is no plugin.
    """
    if not target.startswith("exec:"):
        async with _channel(target) as channel:
            info = await _first_info(channel, target, GET_PLUGIN_INFO.seconds * patience)
            yield Session(channel=channel, info=info, asked=asked, patience=patience)
        return
    command = target.removeprefix("exec:")
    with tempfile.TemporaryDirectory(prefix="sagentry-check-") as folder:
        endpoint = f"unix:{Path(folder) / 'plugin.sock'}"
        async with _launched(command, endpoint) as process, _channel(endpoint) as channel:
            info = await _first_info(channel, target, _LAUNCH_SECONDS * patience, process)
            yield Session(channel=channel, info=info, asked=asked, patience=patience)


class _Process(asyncio.SubprocessProtocol):
    """A launched plugin. Its output is always read, and the last lines of it are kept."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.has_ended = asyncio.Event()
        self.when_ended: Callable[[], object] = lambda: None
        self._rest = ""
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101  it is one by its maker
        self._transport = transport

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._transport.get_returncode() if self._transport is not None else None

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002  there is one pipe
        *lines, rest = (self._rest + data.decode("utf-8", errors="replace")).split("\n")
        self._rest = rest[:_SHOWN_CHARACTERS]
        self.lines.extend(line.strip()[:_SHOWN_CHARACTERS] for line in lines if line.strip())

    def process_exited(self) -> None:
        self.has_ended.set()
        self.when_ended()

    def said(self) -> str:
        """Returns the last lines of its output, for an error."""
        lines = [*self.lines, self._rest.strip()]
        text = " | ".join(line for line in lines if line)
        return f"; its last output: {text}" if text else ""


@asynccontextmanager
async def _launched(command: str, endpoint: str) -> AsyncIterator[_Process]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TargetError(f"cannot read the command {command!r}: {error}") from error
    if not words:
        raise TargetError("`exec:` names no command")
    try:
        transport, process = await asyncio.get_running_loop().subprocess_exec(
            _Process,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment_with_endpoint(endpoint),
            start_new_session=True,
        )
    except OSError as error:
        raise TargetError(f"cannot start {words[0]!r}: {error.strerror}") from error
    try:
        yield process
    finally:
        await _end(transport.get_pid(), process)
        transport.close()


async def _end(pid: int | None, process: _Process) -> None:
    """Ends the command and all that it started: SIGTERM, after 5 s SIGKILL."""
    _signal(pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.has_ended.wait()
    except TimeoutError:
        _signal(pid, signal.SIGKILL)
        await process.has_ended.wait()
    # What it has started and left behind.
    _signal(pid, signal.SIGKILL)


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is None:
        return
    try:
        os.killpg(pid, number)  # the command leads a group of its own
    except ProcessLookupError:
        return


def _channel(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        target,
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            # One layer repeats calls: the cases that want it.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            # A launched plugin is reached soon after it listens.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
        ],
    )


async def _first_info(
    channel: grpc.aio.Channel, target: str, seconds: float, process: _Process | None = None
) -> plugin_pb2.GetPluginInfoResponse:
    call = plugin_pb2_grpc.PluginServiceStub(channel).GetPluginInfo(
        plugin_pb2.GetPluginInfoRequest(
            context=call_context_pb2.CallContext(request_id="attach"),
            host_name="sagentry plugin check",
        ),
        timeout=seconds,
        wait_for_ready=process is not None,
    )
    if process is not None:
        process.when_ended = call.cancel
    try:
        return await call
    except asyncio.CancelledError:
        if process is None or not process.has_ended.is_set():
            raise
        raise TargetError(
            f"{target} ended with code {process.code} before it could be reached{process.said()}"
        ) from None
    except grpc.aio.AioRpcError as error:
        said = process.said() if process is not None else ""
        raise TargetError(f"{target}: {_problem(error, seconds)}{said}") from error


def _problem(error: grpc.aio.AioRpcError, seconds: float) -> str:
    text = " ".join((error.details() or "").split())[:_SHOWN_CHARACTERS]
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return f"cannot be reached: {text}"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"did not answer GetPluginInfo within {seconds:g} s"
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"not a plugin: it answers, but does not serve {PLUGIN}"
        case code:
            return f"GetPluginInfo failed with {code.name}: {text}"
