"""One line per RPC at level DEBUG; never contents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    RpcMethod,
    SurroundingInterceptor,
)

logger = logging.getLogger(__name__)


class LoggingInterceptor(SurroundingInterceptor):
    """Logs method, peer, status code and duration of every RPC when it ends."""

    async def surround(
        self, method: RpcMethod, context: Context, proceed: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Serves the RPC and logs it."""
        if not logger.isEnabledFor(logging.DEBUG):
            return await proceed()
        begin = time.monotonic()
        is_cancelled = False
        try:
            return await proceed()
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            code = context.code()
            logger.debug(
                "rpc ended",
                extra={
                    "method": method.full_name,
                    "peer": context.peer(),
                    "code": "CANCELLED" if is_cancelled else code.name if code else "OK",
                    "elapsed_ms": round((time.monotonic() - begin) * 1000, 3),
                },
            )
