"""Keeps new work out of a server that is ending, and ends the streams that are open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from sagentry.server.errors import UnavailableError
from sagentry.server.rpc.interceptors.surrounding import (
    Context,
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
        self._streams: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()

    def refuse_work(self) -> None:
        """Refuses new work from now on; what is under way goes on."""
        self._is_refusing_work = True

    def end_streams(self) -> None:
        """Ends all open streams with UNAVAILABLE / SERVER_DRAINING and refuses new ones.

        Streams that have a word of their own for it (`end`) should have said it before.
        """
        self._is_refusing_work = True
        self._is_refusing_streams = True
        for task in self._streams:
            self._ended.add(task)
            task.cancel()

    async def surround(
        self, method: RpcMethod, _context: Context, proceed: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Serves the RPC if it may come in.

        Raises:
            UnavailableError: SERVER_DRAINING.
        """
        if self._is_refusing_work and _is_work(method):
            raise _draining()
        if not method.is_response_streaming:
            return await proceed()
        if self._is_refusing_streams:
            raise _draining()
        return await self._stream(proceed)

    async def _stream(self, proceed: Callable[[], Awaitable[Any]]) -> Any:
        task = asyncio.current_task()
        if task is None:
            return await proceed()
        self._streams.add(task)
        try:
            return await proceed()
        except asyncio.CancelledError:
            # Takes back the cancellation by `end_streams`; one by the client remains.
            if task in self._ended and task.uncancel() == 0:
                raise _draining() from None
            raise
        finally:
            self._streams.discard(task)
            self._ended.discard(task)


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
