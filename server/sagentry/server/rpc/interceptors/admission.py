"""Keeps new work out of a server that is ending, and ends the streams that are open."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from sagentry.server.errors import UnavailableError
from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    Proceed,
    RpcMethod,
    SurroundingInterceptor,
)
from sagentry.server.rpc.names import ADMIN_SERVICE, AGENT_SERVICE, EVENT_SERVICE

RETRY_AFTER = timedelta(seconds=2)
"""When another server, or this one again, is expected to take calls."""

_OPERATING = frozenset(
    {
        "ListPlugins",
        "GetPlugin",
        "ListFailures",
        "ListJournal",
        "ListQuarantine",
        "DrainServer",
    }
)
"""Methods of the admin service that operators need while the server is ending."""


class AdmissionInterceptor(SurroundingInterceptor):
    """Lets RPCs in while the server takes work.

    Once `refuse_work` was called, new RPCs of agents and events and writing ones of the admin
    service are refused with UNAVAILABLE / SERVER_DRAINING; health, reflection and admin reads stay.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_refusing_work = False
        self._is_refusing_streams = False
        self._streams: set[_Stream] = set()
        self._answering = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()

    def refuse_work(self) -> None:
        """Refuses new work from now on; what is under way goes on."""
        self._is_refusing_work = True

    def end_streams(self) -> None:
        """Ends all open streams with UNAVAILABLE / SERVER_DRAINING and refuses new ones.

        Streams of events are left alone: their source has been told, and they say `end` with the reason.
        """
        self._is_refusing_work = True
        self._is_refusing_streams = True
        for stream in self._streams:
            stream.end()

    async def wait_answered(self) -> None:
        """Returns when no RPC with a single answer is under way."""
        await self._all_answered.wait()

    async def surround(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves the RPC if it may come in.

        Raises:
            UnavailableError: SERVER_DRAINING.
        """
        if self._is_refusing_work and _is_work(method):
            raise _draining()
        if method.is_response_streaming:
            return await self._stream(method, context, proceed)
        self._answering += 1
        self._all_answered.clear()
        try:
            return await proceed(context)
        finally:
            self._answering -= 1
            if not self._answering:
                self._all_answered.set()

    async def _stream(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        task = asyncio.current_task()
        if self._is_refusing_streams or task is None:
            raise _draining()
        if method.service == EVENT_SERVICE:
            return await proceed(context)
        stream = _Stream(context, task)
        self._streams.add(stream)
        try:
            # Any: stands for the context, of which it has everything.
            standing_in: Any = stream
            return await proceed(standing_in)
        except asyncio.CancelledError:
            # Takes back the cancellation by `end`; one by the client remains.
            if stream.is_cancelled and task.uncancel() == 0:
                raise _draining() from None
            raise
        finally:
            self._streams.discard(stream)


class _Stream:
    """The context of a streaming RPC that can be ended from outside.

    A task that is cancelled while it writes leaves the write with the transport, and no status can
    be sent beside it: the RPC would stay open without an end. So a write is let finish first.
    """

    def __init__(self, context: Context, task: asyncio.Task[Any]) -> None:
        self._context = context
        self._task = task
        self._is_writing = False
        self._is_ended = False
        self.is_cancelled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        self._is_writing = True
        try:
            await self._context.write(message)
        finally:
            self._is_writing = False
        if self._is_ended:
            raise _draining()

    def end(self) -> None:
        self._is_ended = True
        if not self._is_writing:
            self.is_cancelled = True
            self._task.cancel()


def _is_work(method: RpcMethod) -> bool:
    if method.service == ADMIN_SERVICE:
        return method.name not in _OPERATING
    return method.service in {AGENT_SERVICE, EVENT_SERVICE}


def _draining() -> UnavailableError:
    return UnavailableError(
        "SERVER_DRAINING",
        "the server is shutting down",
        retry_after=RETRY_AFTER,
        retry_after_seconds=int(RETRY_AFTER.total_seconds()),
    )
