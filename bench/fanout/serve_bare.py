"""The baseline: a bare grpc.aio server that writes ready bytes to its streams, and nothing else.

One event per response, or as many as there are up to 64 KiB (`--batch`).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from bench.fanout import feed

MAX_RESPONSE_BYTES = 64 * 1024
SERVICE, METHOD = "sagentry.api.agent.v1.EventService", "SubscribeEvents"


class Bare:
    """A list of encoded events and streams that walk along it."""

    def __init__(self, *, batch: bool) -> None:
        self.events: list[bytes] = []
        self.readers: dict[object, int] = {}
        self._batch = batch
        self._news = asyncio.Event()

    def emit(self) -> None:
        self.events.append(feed.encoded())
        self._news.set()

    def lead(self) -> int:
        return len(self.events) - min(self.readers.values(), default=len(self.events))

    async def subscribe(self, _request: bytes, context: Any) -> None:  # noqa: ANN401 - grpc's own class
        """Writes what comes."""
        reader = object()
        await context.write(feed.encoded())
        index = self.readers[reader] = len(self.events)
        try:
            while True:
                if index == len(self.events):
                    self._news.clear()
                    await self._news.wait()
                end = self._end(index) if self._batch else index + 1
                await context.write(b"".join(self.events[index:end]))
                index = self.readers[reader] = end
        finally:
            del self.readers[reader]

    def _end(self, index: int) -> int:
        size = 0
        for end in range(index, len(self.events)):
            size += len(self.events[end])
            if size > MAX_RESPONSE_BYTES:
                return end
        return len(self.events)


class OneEvent:
    """The shortest loop there is: the same event, as fast as it goes, once all streams are open."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self._all_open = asyncio.Event()

    async def subscribe(self, _request: bytes, _context: object) -> AsyncIterator[bytes]:
        """Yields it for ever."""
        event = feed.encoded()
        yield event
        self._missing -= 1
        if self._missing <= 0:
            self._all_open.set()
        await self._all_open.wait()
        while True:
            yield event


async def serve(rate: float, streams: int, *, batch: bool) -> None:
    """Serves until killed."""
    bare = Bare(batch=batch)
    server = grpc.aio.server()
    is_loop = rate == 0 and not batch
    subscribe = OneEvent(streams).subscribe if is_loop else bare.subscribe
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(subscribe)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    if not is_loop:
        await feed.produce(rate, bare.emit, bare.lead, ready=lambda: len(bare.readers) >= streams)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--streams", type=int, default=1, help="how many to wait for")
    parser.add_argument("--batch", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.rate, options.streams, batch=options.batch))


if __name__ == "__main__":
    main()
