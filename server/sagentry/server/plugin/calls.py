"""Every call of a plugin goes through here: deadline, context, the answer's first checks, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError, Message

from sagentry.server.errors import PluginError
from sagentry.server.plugin.binding import ContractViolation, ResponseT
from sagentry.server.plugin.budgets import budget_of
from sagentry.server.plugin.channel import Connection
from sagentry.server.plugin.failures import Failures
from sagentry.server.plugin.outcome import Attempt, Said, breach_of, failure_of, said_of

T = TypeVar("T")

TOO_LARGE_CODE = 8


class Method(NamedTuple):
    """A method of a plugin: full name of its service, and its own name."""

    service: str
    name: str


class Caller:
    """Calls one plugin.

    Args:
        plugin: Its name in the configuration.
        failures: Where its failures are kept.
    """

    def __init__(self, plugin: str, failures: Failures) -> None:
        """Begins with no call made."""
        self.plugin = plugin
        self._failures = failures

    async def call(
        self,
        connection: Connection,
        method: Method,
        request: Message,
        response_type: type[ResponseT],
        read: Callable[[ResponseT], T],
        *,
        caller_left: timedelta | None = None,
        max_request_bytes: int | None = None,
    ) -> T:
        """Calls a method once and reads the answer.

        Args:
            connection: Where the plugin is.
            method: The method.
            request: The request; its context gets the budget.
            response_type: The response's class.
            read: Makes the result of the response; raises ContractViolation when it breaks the contract.
            caller_left: What the caller has left.
            max_request_bytes: What the plugin takes; None for no check.

        Raises:
            PluginError: The plugin failed; StaleEpochError when ownership is lost.
        """
        budget = budget_of(method.name, caller_left)
        loop = asyncio.get_running_loop()
        begin = loop.time()

        def attempt() -> Attempt:
            elapsed = timedelta(seconds=loop.time() - begin)
            return Attempt(self.plugin, method.name, elapsed, budget)

        try:
            raw = _encode(request, budget)
            if max_request_bytes is not None and len(raw) > max_request_bytes:
                raise _too_large(attempt(), len(raw), max_request_bytes)
            try:
                answer = await _send(connection.channel, method, raw, budget)
            except grpc.aio.AioRpcError as error:
                raise failure_of(attempt(), said_of(error)) from error
            return _read(answer, request, response_type, read, attempt())
        except PluginError as error:
            self._failures.add(
                error,
                time=datetime.now(UTC),
                address=connection.address,
                service=method.service,
                request=request,
            )
            raise


def _encode(request: Message, budget: timedelta) -> bytes:
    context = getattr(request, "context", None)
    if context is not None:
        context.budget.FromTimedelta(budget)
    return request.SerializeToString()


async def _send(channel: grpc.aio.Channel, method: Method, raw: bytes, budget: timedelta) -> bytes:
    """Sends bytes and returns bytes: so what cannot be decoded is seen as the plugin's fault."""
    # Any: bytes go in and come out, which the stubs do not know.
    send: Any = channel.unary_unary(f"/{method.service}/{method.name}")
    try:
        answer: bytes = await send(raw, timeout=budget.total_seconds())
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The library cancels a call by itself when its channel closes: the plugin is gone.
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "channel closed"
        ) from None
    return answer


def _read(
    raw: bytes,
    request: Message,
    response_type: type[ResponseT],
    read: Callable[[ResponseT], T],
    attempt: Attempt,
) -> T:
    try:
        response = response_type.FromString(raw)
    except DecodeError as error:
        raise breach_of(attempt, "its answer cannot be decoded") from error
    context = getattr(request, "context", None)
    if context is not None and getattr(response, "request_id", None) != context.request_id:
        raise breach_of(attempt, "its answer repeats another request_id")
    try:
        return read(response)
    except ContractViolation as violation:
        raise breach_of(attempt, str(violation)) from violation


def _too_large(attempt: Attempt, actual: int, limit: int) -> PluginError:
    error = failure_of(attempt, Said(TOO_LARGE_CODE))
    return PluginError(
        "MESSAGE_TOO_LARGE",
        f"takes requests of {limit} bytes, and this one has {actual}",
        plugin=error.plugin,
        method=error.method,
        elapsed=error.elapsed,
        budget=error.budget,
        limit=limit,
        actual=actual,
    )
