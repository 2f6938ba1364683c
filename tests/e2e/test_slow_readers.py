"""Readers that never read, and readers of large things: the server waits for nobody and holds little.

Everything here is a plain stub on a channel without options: 4 MiB is the largest message that it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest

from sagentry.api.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    event_service_pb2_grpc,
)
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.client import AgentView
from tests.support.real_server import RealServer, ended, real_server, rows, said, until

pytestmark = pytest.mark.timeout(300)

READERS = 20
USER = display_pb2.DISPLAY_MESSAGE_TYPE_USER
MIB = 1024 * 1024
HELD_BYTES = READERS * MIB // 2
"""What the server may hold for readers that do not read, their events in its ring included: a response of
64 KiB each, and what gRPC keeps of it on its way."""


@dataclass
class Reader:
    """A stream on a connection of its own, and what it has brought.

    Attributes:
        largest: Bytes of the largest response.
        lagged: How often the stream said that it left something out.
        end: Why it ended, if it did.
    """

    call: Any
    view: AgentView = field(default_factory=AgentView)
    largest: int = 0
    lagged: int = 0
    end: pb.StreamEnd | None = None
    cursor: str = ""
    held: list[str] = field(default_factory=list)
    pieces: int = 0
    caught_up: bool = False
    change: int = 0
    _snapshot: pb.Snapshot | None = None

    async def read(self) -> bool:
        """Takes in one response; False after the end."""
        response = await self.call.read()
        if not isinstance(response, pb.SubscribeEventsResponse):
            return False
        self.largest = max(self.largest, response.ByteSize())
        self.cursor = response.cursor
        for item in response.items:
            self._take(item)
        return True

    async def read_until(self, condition: Callable[[Reader], bool]) -> None:
        """Reads until something is so, or the stream ends."""
        async with asyncio.timeout(120):
            while self.end is None and not condition(self):
                assert await self.read(), "the stream was cut"

    @property
    def growing(self) -> str:
        """The text of the message that grows."""
        return "".join(part.text for one in self.view.growing.values() for part in one.parts)

    @property
    def is_idle(self) -> bool:
        """Whether the run is over and nothing grows."""
        status = self.view.agent.status
        return status == agent_pb2.AGENT_STATUS_IDLE and not self.view.growing

    def _take(self, item: pb.StreamItem) -> None:
        match item.WhichOneof("item"):
            case "snapshot":
                self.pieces += 1
                self._snapshot = self._snapshot or pb.Snapshot()
                self._snapshot.MergeFrom(item.snapshot)
                if item.snapshot.last_piece:
                    self.view.begin(self._snapshot)
                    self.change = self._snapshot.last_change
                    self.held = [m.parts[0].text.text for m in self._snapshot.held_messages]
                    self._snapshot = None
            case "delta":
                self.view.grow(item.delta)
            case "event":
                self.view.apply(item.event)
                self.change = max(
                    self.change,
                    item.event.display_message_saved.display_message.change,
                    item.event.display_message_updated.display_message.change,
                )
            case "caught_up":
                self.caught_up = True
            case "lagged":
                self.lagged += 1
            case "end":
                self.end = item.end


@contextlib.asynccontextmanager
async def readers(server: RealServer, count: int, **options: Any) -> AsyncIterator[list[Reader]]:
    """Opens streams of agent `a` and reads nothing."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for number in range(count):
            # Channels with the same arguments share a connection.
            channel = grpc.aio.insecure_channel(server.address, options=[("test.number", number)])
            await stack.enter_async_context(channel)
            request = pb.SubscribeEventsRequest(agent_id="a", **options)
            request.scope.scoped.tenant = "acme"
            found.append(
                Reader(event_service_pb2_grpc.EventServiceStub(channel).SubscribeEvents(request))
            )
        yield found


@pytest.mark.parametrize(
    "deltas", [20_000, pytest.param(200_000, marks=pytest.mark.soak)], ids=["short", "full"]
)
async def test_readers_that_never_read_hold_up_nobody_and_see_the_truth_when_they_do(
    deltas: int,
) -> None:
    """One browser tab asleep must not stop an agent, nor take the server's memory, nor be told lies."""
    text = "piece" * deltas
    steps = [{"text": ["piece"] * deltas}, {"wait_for": "go"}, {"text": "!"}]
    async with real_server([{"repeat": True, "steps": steps}]) as server:
        scope = await server.start()

        # The first run takes the memory that any run takes.
        server.touch("go")
        first = await scope.add_message("a", "hello")
        await ended(scope, first.run_id)
        (server.folder / "go").unlink()
        before = server.resident()
        async with (
            readers(server, READERS // 2) as patient,
            readers(server, READERS // 2, policy=pb.LAG_POLICY_DISCONNECT) as strict,
        ):
            await asyncio.gather(*(one.call.wait_for_connection() for one in (*patient, *strict)))
            second = await scope.add_message("a", "again")
            await all_is_said(server, text)
            held = server.resident() - before

            # Some read now, while the message still grows.
            for one in patient[:2]:
                await one.read_until(lambda it: it.growing == text)
                assert one.lagged

            server.touch("go")
            run = await ended(scope, second.run_id)
            assert run.run.end == agent_pb2.RUN_END_COMPLETED
            assert held < HELD_BYTES

            last = (await rows(scope))[-1]
            for one in patient:
                await one.read_until(lambda it: it.change == last.change and it.is_idle)
                assert (one.end, bool(one.lagged)) == (None, True)
            for one in strict:
                await one.read_until(lambda _: False)
                assert one.end is not None
                assert (one.end.reason, one.end.reconnect) == (pb.STREAM_END_REASON_LAGGED, True)
            async with readers(server, 1, from_cursor=strict[0].cursor) as [again]:
                await again.read_until(lambda it: it.change == last.change and it.is_idle)
        assert said(last) == f"{text}!"


async def all_is_said(server: RealServer, text: str) -> None:
    """Returns when a new reader sees all of a text growing."""

    async def is_so() -> bool:
        async with readers(server, 1) as [one]:
            await one.read_until(lambda it: it.caught_up)
            return one.growing == text

    await until(is_so)


async def test_eight_held_messages_of_a_mebibyte_reach_a_client_of_four() -> None:
    """A snapshot with all that waits is larger than what clients take: no browser could open the page."""
    large = [f"{n}" * MIB for n in range(8)]
    script: list[dict[str, Any]] = [
        {"steps": [{"text": "on it"}, {"wait_for": "go"}]},
        {"repeat": True, "steps": [{"text": "ok"}]},
    ]
    async with real_server(script) as server:
        scope = await server.start()
        first = await scope.add_message("a", "hello")
        for text in large:
            await scope.add_message("a", text)
        async with readers(server, 1) as [one]:
            await one.read_until(lambda it: it.caught_up)
            waiting = list(one.held)
            server.touch("go")
            await ended(scope, first.run_id)
            await one.read_until(lambda it: it.is_idle)

        async with grpc.aio.insecure_channel(server.address) as channel:
            pages = await default_pages(channel)

    assert waiting == large
    assert one.pieces > 1
    assert one.largest <= 3 * MIB
    assert [said(row) for page in pages for row in page.display_messages if row.type == USER][
        1:
    ] == large
    assert max(page.ByteSize() for page in pages) <= 3 * MIB


async def default_pages(
    channel: grpc.aio.Channel,
) -> list[agent_service_pb2.ListDisplayMessagesResponse]:
    """Reads a transcript with a plain stub."""
    stub = agent_service_pb2_grpc.AgentServiceStub(channel)
    request = agent_service_pb2.ListDisplayMessagesRequest(conversation_id="a")
    request.scope.scoped.tenant = "acme"
    pages = [await stub.ListDisplayMessages(request)]
    while pages[-1].next_page_token:
        request.page_token = pages[-1].next_page_token
        pages.append(await stub.ListDisplayMessages(request))
    return pages
