"""What comes next to a follower: a response of its stream, or a page of rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, Self

import grpc
import grpc.aio

from sagentry.api.agent.v1 import agent_service_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.client._errors import SagentryError, UnavailableError, error_from, is_transient

SILENCE = timedelta(seconds=60)
"""A stream that says nothing for so long is taken as cut: the server sends a bookmark every 15 s."""

LONGEST_PAUSE_SECONDS = 5.0

Call = grpc.aio.UnaryStreamCall[pb.SubscribeEventsRequest, pb.SubscribeEventsResponse]


class Server(Protocol):
    """What following needs of a server."""

    def subscribe(self, cursor: str) -> Call:
        """Begins a stream."""

    async def rows_after(
        self, conversation_id: str, change: int
    ) -> agent_service_pb2.ListDisplayMessagesResponse:
        """Reads one page of the rows with a higher change, ascending. Raises SagentryError."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows that were read, or why they could not be.

    Attributes:
        rows: By ascending change.
        is_last: Whether there were no more.
        error: Why the page could not be read. It is tried again.
        attempt: How many times in a row that was so.
    """

    rows: tuple[display_pb2.DisplayMessage, ...] = ()
    is_last: bool = False
    error: SagentryError | None = None
    attempt: int = 0


class Arrivals:
    """Iterates over responses, and over pages while rows are wanted. Close it.

    Raises SagentryError when the stream fails or is cut, and when reading rows fails for good.
    """

    def __init__(self, server: Server, cursor: str) -> None:
        """Begins a stream."""
        self._server = server
        self._call = server.subscribe(cursor)
        self._response: asyncio.Task[pb.SubscribeEventsResponse] | None = None
        self._page: asyncio.Task[Page] | None = None
        self._attempt = 0

    def want_rows(self, conversation_id: str, change: int) -> None:
        """Asks for the next page of rows, unless one is on its way."""
        if self._page is None:
            # Ended by `close`.
            self._page = asyncio.get_running_loop().create_task(
                self._read_page(conversation_id, change)
            )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pb.SubscribeEventsResponse | Page:
        if self._response is None:
            # Ended by `close`. A task, because a read that is cancelled takes the whole stream with it.
            self._response = asyncio.get_running_loop().create_task(self._read())
        tasks = [task for task in (self._page, self._response) if task is not None]
        done, _ = await asyncio.wait(
            tasks, timeout=SILENCE.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        if self._page is not None and self._page in done:
            finished, self._page = self._page, None
            return finished.result()
        if self._response in done:
            response, self._response = self._response, None
            return response.result()
        raise UnavailableError(
            grpc.StatusCode.UNAVAILABLE,
            f"the stream was silent for {SILENCE.total_seconds():.0f} s",
        )

    async def close(self) -> None:
        """Ends the stream and whatever is on its way."""
        self._call.cancel()
        for task in (self._page, self._response):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    # Looked at, so that nobody complains that it was not.
                    task.exception()

    async def _read(self) -> pb.SubscribeEventsResponse:
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as rpc_error:
            raise error_from(rpc_error) from rpc_error
        if isinstance(response, pb.SubscribeEventsResponse):
            return response
        raise UnavailableError(grpc.StatusCode.UNAVAILABLE, "the stream was cut without an end")

    async def _read_page(self, conversation_id: str, change: int) -> Page:
        if self._attempt:
            await asyncio.sleep(min(0.1 * 2 ** min(self._attempt, 16), LONGEST_PAUSE_SECONDS))
        try:
            answer = await self._server.rows_after(conversation_id, change)
        except SagentryError as error:
            if error.reason == "PLUGIN_INCOMPATIBLE":
                # No store keeps rows: there are none to read.
                return Page(is_last=True)
            if not is_transient(error):
                raise
            self._attempt += 1
            return Page(error=error, attempt=self._attempt)
        self._attempt = 0
        return Page(tuple(answer.display_messages), is_last=not answer.next_page_token)
