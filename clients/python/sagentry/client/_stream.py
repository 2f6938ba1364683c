"""A stream of events, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import grpc.aio

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.client._errors import error_from

_Call = grpc.aio.UnaryStreamCall[pb.SubscribeEventsRequest, pb.SubscribeEventsResponse]


class EventStream:
    """Iterates over the items of a stream. Leaving its context, or `close`, ends the call.

    It ends where the server's stream ends; an `end` item says why. Without one it was cut, or closed
    here: subscribe again with `cursor` to go on.

    Attributes:
        cursor: Where to go on: the cursor of the last response whose items were all handed out. Empty
            before that.
        last_sequence: The last durable sequence that the response with that cursor considered.
    """

    def __init__(self, call: _Call) -> None:
        """Takes over a call that has begun."""
        self.cursor = ""
        self.last_sequence = 0
        self._call = call
        self._items = self._read()

    async def _read(self) -> AsyncIterator[pb.StreamItem]:
        try:
            async for response in self._call:
                for item in response.items:
                    yield item
                self.cursor = response.cursor
                self.last_sequence = response.last_sequence
        except grpc.aio.AioRpcError as rpc_error:
            raise error_from(rpc_error) from rpc_error
        except asyncio.CancelledError:
            # gRPC raises it where the call was closed as well; the task that reads goes on then.
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self._call.cancelled():
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pb.StreamItem:
        return await anext(self._items)

    def close(self) -> None:
        """Ends the call. Runs go on. Safe to repeat."""
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
