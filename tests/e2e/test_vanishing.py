"""Subscribers that come and go, are killed, or fall silent without a word: none may cost the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.agent.v1 import event_service_pb2_grpc
from sagentry.client import LimitExceededError, ScopedClient
from tests.support.real_server import RealServer, real_server, until
from tests.support.repository import ROOT

STREAMS = 40
"""Streams that the server of these tests grants: one that is left behind is missed at once."""

MIB = 1024 * 1024

# Opens streams on connections of their own and waits to be killed.
CROWD = """
import asyncio, sys
import grpc.aio
from sagentry.api.agent.v1 import event_service_pb2 as pb, event_service_pb2_grpc

async def main(address, count):
    request = pb.SubscribeEventsRequest(agent_id="a")
    request.scope.scoped.tenant = "acme"
    calls = []
    for number in range(count):
        channel = grpc.aio.insecure_channel(address, options=[("test.number", number)])
        calls.append(event_service_pb2_grpc.EventServiceStub(channel).SubscribeEvents(request))
        await calls[-1].read()
    print("open", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@contextlib.asynccontextmanager
async def server_with_few_streams() -> AsyncIterator[tuple[RealServer, ScopedClient]]:
    more = {"limits": {"streams_per_caller": STREAMS}}
    async with real_server([], more=more) as server:
        server.listen_on_tcp()
        yield server, await server.start()


def request() -> pb.SubscribeEventsRequest:
    found = pb.SubscribeEventsRequest(agent_id="a")
    found.scope.scoped.tenant = "acme"
    return found


async def all_streams_are_free(scope: ScopedClient) -> bool:
    """Whether as many streams as the server grants can be opened at once."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            for _ in range(STREAMS):
                stream = await stack.enter_async_context(scope.subscribe("a"))
                await anext(aiter(stream))
        except LimitExceededError:
            return False
    return True


async def come_and_go(address: str, cycles: int) -> None:
    """Subscribes and cancels, at each possible moment of a stream's beginning."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = event_service_pb2_grpc.EventServiceStub(channel)

        async def cycle(number: int) -> None:
            call = stub.SubscribeEvents(request())
            for _ in range(number % 3):
                await asyncio.sleep(0)
            if number % 2:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await call.read()
            call.cancel()

        numbers = iter(range(cycles))

        async def goer() -> None:
            for number in numbers:
                await cycle(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(goer())


@pytest.mark.parametrize(
    ("cycles", "vanishing"),
    [(400, 30), pytest.param(20_000, 500, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])],
    ids=["short", "full"],
)
async def test_streams_that_are_left_in_any_way_are_free_again(cycles: int, vanishing: int) -> None:
    async with server_with_few_streams() as (server, scope):

        async def are_free() -> bool:
            return await all_streams_are_free(scope)

        await come_and_go(server.address, cycles // 10)
        await until(are_free)
        before = server.resident()
        await come_and_go(server.address, cycles)
        for _ in range(0, vanishing, STREAMS):
            await vanish(server.address, min(STREAMS, vanishing))
            await until(are_free)
        grown = server.resident() - before

    # One KiB that stays of each would be 20 MiB of the full form.
    assert grown < 10 * MIB


async def vanish(address: str, count: int) -> None:
    """A process with open streams is killed."""
    words = ("-c", CROWD, address, str(count))
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert crowd.stdout is not None
    assert await crowd.stdout.readline() == b"open\n"
    crowd.kill()
    await crowd.wait()


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_clients_that_fall_silent_are_noticed() -> None:
    """A laptop that is closed sends no goodbye; the server asks, and does not wait for hours."""
    async with (
        server_with_few_streams() as (server, scope),
        silent_proxy(server.address) as (there, silence),
        grpc.aio.insecure_channel(there) as channel,
    ):
        stub = event_service_pb2_grpc.EventServiceStub(channel)
        calls = [stub.SubscribeEvents(request()) for _ in range(STREAMS)]
        await asyncio.gather(*(call.read() for call in calls))
        assert not await all_streams_are_free(scope)
        silence.set()

        async def are_free() -> bool:
            return await all_streams_are_free(scope)

        await until(are_free, seconds=200)


@contextlib.asynccontextmanager
async def silent_proxy(address: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Passes all bytes on until told to be silent: then it takes and says nothing, and closes nothing."""
    silence = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []
    host, port = address.rsplit(":", 1)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if silence.is_set():
                await asyncio.Event().wait()
            writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        writers.extend((writer, there[1]))
        for one, other in ((reader, there[1]), (there[0], writer)):
            tasks.add(asyncio.get_running_loop().create_task(pass_on(one, other)))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}", silence
        for task in tasks:
            task.cancel()
        for one in writers:
            one.transport.abort()
