"""The client of all servers: opens streams, counts what comes, prints one line of JSON.

The same program and the same generated messages for ours and for the bare server; SSE is only counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import quantiles

import grpc.aio

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.agent.v1 import event_service_pb2_grpc as stub

CHANNELS = 4
TIMED_STREAMS = 20
"""So many streams at most measure latencies; the others count, or the client would be what is measured."""


@dataclass
class Seen:
    """What the streams have seen.

    Attributes:
        events: Deltas that came.
        latencies: Nanoseconds from an event's making to its reading.
    """

    events: int = 0
    latencies: list[int] = field(default_factory=list)


async def read(
    channel: grpc.aio.Channel, seen: Seen, opened: Callable[[], None], *, timed: bool
) -> None:
    """Follows one stream until cancelled."""
    request = pb.SubscribeEventsRequest(agent_id="a")
    request.scope.unscoped.SetInParent()
    first = True
    async for response in stub.EventServiceStub(channel).SubscribeEvents(request):
        if first:
            first = False
            opened()
        if not timed:
            seen.events += len(response.items)
            continue
        now = time.monotonic_ns()
        for item in response.items:
            if item.HasField("delta"):
                seen.events += 1
                seen.latencies.append(now - int(item.delta.text.text[:20]))


class SseReader(asyncio.Protocol):
    """Counts the events of one response."""

    def __init__(self, seen: Seen, opened: Callable[[], None]) -> None:
        self._seen = seen
        self._opened: Callable[[], None] | None = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_connection makes
        transport.write(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        if self._opened is not None:
            self._opened()
            self._opened = None
        self._seen.events += data.count(b"data: ")


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Opens the streams, waits until each has begun, counts for a while."""
    seen = Seen()
    counted = asyncio.Semaphore(0)
    channels = [
        # Channels with the same arguments would share one connection.
        grpc.aio.insecure_channel(options.address, options=[("bench.channel", number)])
        for number in range(CHANNELS)
    ]
    stalled = [_stalled(channels[number % CHANNELS]) for number in range(options.stalled)]
    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    for number in range(options.streams):
        if options.sse:
            host, port = options.address.rsplit(":", 1)
            await loop.create_connection(lambda: SseReader(seen, counted.release), host, int(port))
        else:
            timed = options.timed and number < TIMED_STREAMS
            work = read(channels[number % CHANNELS], seen, counted.release, timed=timed)
            tasks.append(loop.create_task(work))
    for _ in range(options.streams):
        await counted.acquire()
    print("open", flush=True)
    await asyncio.sleep(options.warm_up)
    seen.events, seen.latencies = 0, []
    began = time.perf_counter()
    await asyncio.sleep(options.seconds)
    events, latencies, elapsed = seen.events, seen.latencies, time.perf_counter() - began
    for task in tasks:
        task.cancel()
    for call in stalled:
        call.cancel()
    p99 = quantiles(latencies, n=100)[-1] / 1e6 if len(latencies) > 1 else 0.0
    return {"events_per_s": events / elapsed, "p99_ms": p99}


def _stalled(
    channel: grpc.aio.Channel,
) -> grpc.aio.UnaryStreamCall[pb.SubscribeEventsRequest, pb.SubscribeEventsResponse]:
    """Opens a stream that nobody reads."""
    request = pb.SubscribeEventsRequest(agent_id="a")
    request.scope.unscoped.SetInParent()
    return stub.EventServiceStub(channel).SubscribeEvents(request)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--stalled", type=int, default=0)
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--sse", action="store_true")
    print(json.dumps(asyncio.run(measure(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
