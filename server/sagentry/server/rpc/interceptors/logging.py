"""One line per RPC at level DEBUG; never contents."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import grpc

from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    Proceed,
    RpcMethod,
    SurroundingInterceptor,
)

logger = logging.getLogger(__name__)


class LoggingInterceptor(SurroundingInterceptor):
    """Logs method, peer, status code and duration of every RPC when it ends."""

    async def surround(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves the RPC and logs it."""
        if not logger.isEnabledFor(logging.DEBUG):
            return await proceed(context)
        begin = time.monotonic()
        is_cancelled = False
        try:
            return await proceed(context)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            # Typed as always set, and None until somebody sets it.
            code: grpc.StatusCode | None = context.code()
            logger.debug(
                "rpc ended",
                extra={
                    "method": method.full_name,
                    "peer": context.peer(),
                    "code": "CANCELLED" if is_cancelled else code.name if code else "OK",
                    "elapsed_ms": round((time.monotonic() - begin) * 1000, 3),
                },
            )
