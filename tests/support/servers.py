"""Servers, channels and errors as the tests of the server's shell use them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_status import rpc_status

from sagentry.server.addresses import TcpAddress
from sagentry.server.app import FinishAgents, RunningServer, running_server
from sagentry.server.ports import AgentDirectory, Authenticator
from sagentry.server.settings import Settings
from tests.support.fake_plugins import FakePlugins


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short path: one of pytest's own is too long for a Unix socket."""
    made = Path(tempfile.mkdtemp(prefix="sg-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@dataclass(frozen=True)
class Served:
    """A running server with a channel to it."""

    server: RunningServer
    channel: Any
    plugins: FakePlugins
    data_dir: Path


@asynccontextmanager
async def served(
    *,
    listen: tuple[str, ...] = ("127.0.0.1:0",),
    plugins: FakePlugins | None = None,
    data_dir: Path | None = None,
    authenticator: Authenticator | None = None,
    agents: AgentDirectory | None = None,
    finish_agents: FinishAgents | None = None,
) -> AsyncIterator[Served]:
    fake = plugins or FakePlugins()
    more: dict[str, Any] = {} if finish_agents is None else {"finish_agents": finish_agents}
    with short_folder() as folder:
        settings = Settings.model_validate(
            {"data_dir": data_dir or folder / "data", "listen": listen}
        )
        async with (
            running_server(
                settings,
                make_plugins=lambda _settings, _dir: fake,
                authenticator=authenticator,
                agents=agents,
                **more,
            ) as server,
            channel_to(str(server.addresses[0])) as channel,
        ):
            yield Served(server, channel, fake, settings.data_dir)


def channel_to(target: str) -> Any:
    """Opens a channel; the caller closes it."""
    return grpc.aio.insecure_channel(
        target,
        options=(("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 33_554_432)),
    )


def health_stub(channel: Any) -> Any:
    return health_pb2_grpc.HealthStub(channel)


def port_of(server: RunningServer) -> int:
    address = server.addresses[0]
    assert isinstance(address, TcpAddress)
    return address.port


@dataclass(frozen=True)
class ReceivedError:
    """A failed RPC, as its client sees it."""

    code: grpc.StatusCode
    message: str
    info: Any
    details: dict[str, Any]


def received(error: grpc.aio.AioRpcError) -> ReceivedError:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # reads code, details, trailers
    details = {}
    for packed in status.details if status else ():
        name = packed.TypeName().rpartition(".")[2]
        message = getattr(error_details_pb2, name)()
        packed.Unpack(message)
        details[name] = message
    return ReceivedError(error.code(), error.details() or "", details.get("ErrorInfo"), details)
