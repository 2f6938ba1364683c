"""One unary call in the caller's eyes: repeated while the server is away and time is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import grpc.aio

from sagentry.client._errors import UnavailableError, error_from

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

Metadata = Sequence[tuple[str, str]]

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class Method(Protocol[RequestT_contra, ResponseT]):
    """A method of a stub."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float | None, metadata: Metadata
    ) -> grpc.aio.UnaryUnaryCall[Any, ResponseT]:
        """Begins a call."""


async def call(
    method: Method[RequestT, ResponseT],
    request: RequestT,
    *,
    timeout: timedelta,
    metadata: Metadata = (),
    may_repeat: bool = True,
) -> ResponseT:
    """Calls a method and returns its response.

    UNAVAILABLE is answered by repeating the very same request, with growing pauses, until the time is
    over: the request_id in it makes that safe.

    Args:
        method: The method.
        request: The request.
        timeout: Time for all attempts together.
        metadata: Metadata of the call.
        may_repeat: Whether a second attempt does no harm.

    Raises:
        SagentryError: The call failed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout.total_seconds()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            left = max(0.0, deadline - loop.time())
            return await method(request, timeout=left, metadata=metadata)
        except grpc.aio.AioRpcError as rpc_error:
            error = error_from(rpc_error)
            if not isinstance(error, UnavailableError) or not may_repeat:
                raise error from rpc_error
            wait = _wait(error, pause)
            if loop.time() + wait >= deadline:
                raise error from rpc_error
        await asyncio.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _wait(error: UnavailableError, pause: float) -> float:
    # Spread, so that the clients of one server do not come back at the same moment.
    spread = pause * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
    asked = error.retry_after.total_seconds() if error.retry_after else 0.0
    return max(asked, spread)
