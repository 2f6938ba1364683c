"""Counts the calls that a plugin is working on, so that it can end when they are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from sagentry.plugins.sdk.binding import Handler, Kind


class InFlight:
    """Calls whose method still runs or whose answer is still on its way. Safe in all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._when_idle: Callable[[], None] | None = None

    def counting(self, handler: Handler, kind: Kind) -> Handler:
        """Returns the handler, counted from its start until both it and the call have ended."""

        def handle(request: object, context: grpc.ServicerContext) -> Any:  # noqa: ANN401  any response
            self._begin()
            if not context.add_callback(self._end):
                self._end()
            try:
                return handler(request, context)
            finally:
                self._end()

        async def handle_soon(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: ANN401  any response
            self._begin()
            context.add_done_callback(self._on_done)  # type: ignore[arg-type]  # the stubs want two arguments
            try:
                return await handler(request, context)
            finally:
                self._end()

        return handle_soon if kind is Kind.ASYNCHRONOUS else handle

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Calls back once, as soon as nothing is in flight; maybe in another thread."""
        with self._lock:
            self._when_idle = callback
        self._settle(0)

    def _begin(self) -> None:
        with self._lock:
            self._count += 2  # the method and the call

    def _end(self) -> None:
        self._settle(1)

    def _on_done(self, _context: object) -> None:
        self._end()

    def _settle(self, ended: int) -> None:
        with self._lock:
            self._count -= ended
            callback = self._when_idle if self._count == 0 else None
            if callback is not None:
                self._when_idle = None
        if callback is not None:
            callback()
