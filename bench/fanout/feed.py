"""What the servers stream: the same event for each of them, and the pace of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sagentry.server.domain.events import Delta, TextDelta
from sagentry.server.rpc.event_encoder import ProtoEventEncoder

AHEAD = 1024
"""At full speed a producer stays this many events before its slowest reader, or readers would be dropped."""

BURST = 32

_encoder = ProtoEventEncoder()
_MESSAGE = "msg-0123456789abcdef"
_RUN = "run-0123456789abcdef"


def delta() -> Delta:
    """An event that carries the time of its making in nanoseconds, 20 digits, and a word."""
    return Delta(_MESSAGE, 0, _RUN, TextDelta(4711, f"{time.monotonic_ns():020d} word"))


def encoded() -> bytes:
    """The same as a whole SubscribeEventsResponse of one item."""
    return _encoder.encode_delta(delta())


async def paced(rate: float, emit: Callable[[], None]) -> None:
    """Emits so many events a second, for ever."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    emitted = 0
    while True:
        due = int((loop.time() - began) * rate)
        for _ in range(due - emitted):
            emit()
        emitted = due
        await asyncio.sleep(max(0.0, began + (emitted + 1) / rate - loop.time()))


async def at_full_speed(emit: Callable[[], None], lead: Callable[[], int]) -> None:
    """Emits as fast as the slowest reader reads, for ever.

    Args:
        emit: Makes one event.
        lead: Returns how many events the slowest reader is behind.
    """
    while True:
        if lead() < AHEAD:
            for _ in range(BURST):
                emit()
        await asyncio.sleep(0)


async def produce(
    rate: float, emit: Callable[[], None], lead: Callable[[], int], *, ready: Callable[[], bool]
) -> None:
    """Emits at a rate, for ever; 0 is full speed, negative is never.

    Args:
        rate: Events a second.
        emit: Makes one event.
        lead: Returns how many events the slowest reader is behind.
        ready: Whether all streams are open: at full speed none can be opened beside the others.
    """
    while not ready():  # noqa: ASYNC110 - two servers, which have no event in common
        await asyncio.sleep(0.01)
    if rate > 0:
        await paced(rate, emit)
    elif rate == 0:
        await at_full_speed(emit, lead)
