"""A server takes what it needs, refuses what another has, and gives everything back."""

from __future__ import annotations

import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as pb_grpc
from sagentry.server.app import RunningServer, running_server
from sagentry.server.errors import StartError
from sagentry.server.rpc import names
from sagentry.server.settings import Settings
from tests.support.fake_plugins import FakePlugins
from tests.support.servers import channel_to, health_stub, port_of, received, served, short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@asynccontextmanager
async def server_in(
    data_dir: Path, *listen: str, plugins: FakePlugins | None = None
) -> AsyncIterator[RunningServer]:
    settings = Settings.model_validate({"data_dir": data_dir, "listen": listen or ("127.0.0.1:0",)})
    fake = plugins or FakePlugins()
    async with running_server(settings, make_plugins=lambda _settings, _dir: fake) as running:
        yield running


async def is_answering(target: str) -> bool:
    async with channel_to(target) as channel:
        response = await pb_grpc.AdminServiceStub(channel).ListPlugins(
            pb.ListPluginsRequest(), timeout=10
        )
    return isinstance(response, pb.ListPluginsResponse)


async def refusal(data_dir: Path, *listen: str) -> str:
    with pytest.raises(StartError) as caught:
        async with server_in(data_dir, *listen):
            pass
    return str(caught.value)


@pytest.mark.anyio
async def test_the_server_answers_on_tcp_and_on_its_unix_socket(folder: Path) -> None:
    path = f"unix:{folder}/s.sock"

    async with server_in(folder / "data", "127.0.0.1:0", path) as running:
        assert port_of(running) > 0
        assert await is_answering(f"127.0.0.1:{port_of(running)}")
        assert await is_answering(path)


@pytest.mark.anyio
async def test_data_folder_and_socket_are_for_their_owner_only(folder: Path) -> None:
    async with server_in(folder / "data", f"unix:{folder}/s.sock"):
        data_mode = stat.S_IMODE((folder / "data").stat().st_mode)
        socket_mode = stat.S_IMODE((folder / "s.sock").stat().st_mode)

    assert (data_mode, socket_mode) == (0o700, 0o600)


@pytest.mark.anyio
async def test_a_second_server_on_the_same_port_is_refused_and_the_first_unharmed(
    folder: Path,
) -> None:
    async with server_in(folder / "one") as first:
        address = f"127.0.0.1:{port_of(first)}"

        problem = await refusal(folder / "two", address)

        assert problem == f"address {address} is in use"
        assert await is_answering(address)


@pytest.mark.anyio
async def test_a_second_server_on_the_same_unix_socket_is_refused_and_the_first_unharmed(
    folder: Path,
) -> None:
    address = f"unix:{folder}/s.sock"
    async with server_in(folder / "one", address):
        problem = await refusal(folder / "two", address)

        assert problem.startswith(f"address {address} is in use by another server (pid ")
        assert await is_answering(address)


@pytest.mark.anyio
async def test_a_second_server_on_the_same_data_folder_is_refused_and_the_first_unharmed(
    folder: Path,
) -> None:
    async with server_in(folder / "data") as first:
        problem = await refusal(folder / "data")

        assert problem.startswith(f"data folder {folder}/data is in use by another server (pid ")
        assert await is_answering(f"127.0.0.1:{port_of(first)}")


@pytest.mark.anyio
async def test_a_start_that_failed_leaves_nothing_behind(folder: Path) -> None:
    plugins = FakePlugins()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sock = f"unix:{folder}/s.sock"
        with pytest.raises(StartError):
            async with server_in(folder / "data", sock, f"127.0.0.1:{port}", plugins=plugins):
                pass

    assert "plugins started" not in plugins.steps, "a server without its address launches nothing"
    assert not (folder / "s.sock").exists()
    async with server_in(folder / "data", sock, f"127.0.0.1:{port}"):
        assert await is_answering(f"127.0.0.1:{port}")


@pytest.mark.anyio
async def test_the_port_of_a_start_that_failed_is_free_again(folder: Path) -> None:
    (folder / "file").write_text("not a socket")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    problem = await refusal(folder / "data", f"127.0.0.1:{port}", f"unix:{folder}/file")

    assert problem == f"cannot listen on unix:{folder}/file: there is a file that is no socket"
    assert (folder / "file").read_text() == "not a socket"
    async with server_in(folder / "data", f"127.0.0.1:{port}"):
        assert await is_answering(f"127.0.0.1:{port}")


@pytest.mark.anyio
async def test_a_socket_of_another_program_is_not_taken_over(folder: Path) -> None:
    path = f"{folder}/s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()

        problem = await refusal(folder / "data", f"unix:{path}")

    assert problem == f"address unix:{path} is in use by a program without a lock file"


@pytest.mark.anyio
async def test_a_socket_that_nobody_listens_on_is_replaced(folder: Path) -> None:
    path = f"{folder}/s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    async with server_in(folder / "data", f"unix:{path}"):
        assert await is_answering(f"unix:{path}")


@pytest.mark.anyio
async def test_a_socket_in_a_folder_that_is_not_there_is_named(folder: Path) -> None:
    problem = await refusal(folder / "data", f"unix:{folder}/none/s.sock")

    assert problem == f"cannot listen on unix:{folder}/none/s.sock: No such file or directory"


@pytest.mark.anyio
async def test_an_address_of_another_machine_is_named(folder: Path) -> None:
    settings = Settings.model_validate(
        {"data_dir": folder / "data", "insecure": True, "listen": ["192.0.2.1:7433"]}
    )

    with pytest.raises(StartError, match=r"cannot listen on 192\.0\.2\.1:7433: "):
        async with running_server(settings, make_plugins=lambda _settings, _dir: FakePlugins()):
            pass


@pytest.mark.anyio
async def test_a_data_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "file").write_text("")

    problem = await refusal(folder / "file" / "data")

    assert problem == f"data folder {folder}/file/data cannot be used: File exists"


@pytest.mark.anyio
async def test_the_drain_is_ordered_and_operators_can_look_at_it() -> None:
    steps: list[str] = []
    begun, may_end = anyio.Event(), anyio.Event()

    async def finish_agents() -> None:
        begun.set()
        await may_end.wait()
        steps.append("agents finished")

    plugins = FakePlugins()
    plugins.steps = steps

    async def look() -> None:
        async with channel_to(target) as channel:
            await begun.wait()
            health = await health_stub(channel).Check(health_pb2.HealthCheckRequest())
            steps.append(health_pb2.HealthCheckResponse.ServingStatus.Name(health.status))
            await pb_grpc.AdminServiceStub(channel).ListPlugins(pb.ListPluginsRequest())
            steps.append("admin answers")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"/{names.AGENT_SERVICE}/AddMessage")(b"")
            error = received(caught.value)
            steps.append(f"{error.code.name} {error.info.reason}")
            assert error.details["RetryInfo"].retry_delay.seconds == 2
        may_end.set()

    with anyio.fail_after(20):
        # Two, because the tasks outlive the server.
        async with anyio.create_task_group() as tasks:  # noqa: SIM117
            async with served(plugins=plugins, finish_agents=finish_agents) as running:
                target = f"127.0.0.1:{port_of(running.server)}"
                tasks.start_soon(look)

    assert steps == [
        "plugins started",
        "NOT_SERVING",
        "admin answers",
        "UNAVAILABLE SERVER_DRAINING",
        "agents finished",
        "plugins stopped",
    ]


async def read_all(stream: grpc.aio.UnaryStreamCall[Any, Any]) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def ended_streams(*open_streams: grpc.aio.UnaryStreamCall[Any, Any]) -> list[str]:
    reasons = []
    for stream in open_streams:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_all(stream)
        reasons.append(received(caught.value).info.reason)
    return reasons


@pytest.mark.anyio
async def test_open_streams_do_not_hold_up_the_end_and_are_told_why() -> None:
    async with served() as running:
        target = f"127.0.0.1:{port_of(running.server)}"
        channel = channel_to(target)
        watch = health_stub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        # A stream that has sent nothing and whose server waits for its client.
        silent = channel.stream_stream(f"/{names.REFLECTION_V1_SERVICE}/ServerReflectionInfo")()
        await silent.write(b"\x3a\x00")
        await silent.read()
        begin = anyio.current_time()

    elapsed = anyio.current_time() - begin
    async with channel:
        reasons = await ended_streams(watch, silent)
    assert reasons == ["SERVER_DRAINING", "SERVER_DRAINING"]
    assert elapsed < 5
