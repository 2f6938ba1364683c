"""The one place where exceptions become statuses."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc_status import rpc_status

from sagentry.server.errors import InvalidInputError, SagentryError
from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    Handler,
    Proceed,
    RpcMethod,
    SurroundingInterceptor,
    behavior_of,
    with_behavior,
)
from sagentry.server.rpc.status import internal_status, status_of

logger = logging.getLogger(__name__)


class ErrorInterceptor(SurroundingInterceptor):
    """Ends a failed RPC with a status that says what the client may know.

    A `SagentryError` tells its code, reason and details. Anything else is a fault: the client gets
    an error id, the log the traceback under it. The same holds for requests that cannot be decoded
    and responses that cannot be encoded.
    """

    async def surround(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves the RPC; raises only what ends it without, or with an already sent, status."""
        try:
            return await proceed(context)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Something that the handler waited for was cancelled, not the RPC. grpc takes it for
            # the RPC's own cancellation and would never answer.
            status = _fault(error, method)
        except grpc.aio.UsageError as error:
            status = _fault(error, method)
        except grpc.aio.BaseError:
            # The handler has ended the RPC itself, or it was cut: client gone, server stopped.
            raise
        except SagentryError as error:
            status = status_of(error)
        except ExceptionGroup as group:
            only = _only_error(group)
            status = status_of(only) if isinstance(only, SagentryError) else _fault(group, method)
        except Exception as error:  # noqa: BLE001 whatever it is, the client must get an answer
            status = _fault(error, method)
        if not context.done():
            await _end(context, status)
        return None

    def _wrap(self, method: RpcMethod, handler: Handler) -> Handler:
        behavior = behavior_of(handler)
        deserialize = handler.request_deserializer
        serialize = handler.response_serializer

        async def serve(request: Any, context: Context) -> Any:
            if isinstance(request, _Undecodable):
                problem = "cannot be decoded as the message of this method"
                raise InvalidInputError("request", problem)
            response = await behavior(request, context)
            if handler.response_streaming or serialize is None or context.done():
                return response
            return serialize(response)

        async def surrounded(request: Any, context: Context) -> Any:
            return await self.surround(method, context, partial(serve, request))

        return with_behavior(
            handler,
            surrounded,
            # Outside of the handler grpc itself answers what fails, and with the exception's text.
            deserialize if handler.request_streaming else _tolerant(deserialize),
            serialize if handler.response_streaming else None,
        )


class _Undecodable:
    """Stands for a request that is not a message of its type."""


def _tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def attempt(raw: bytes) -> Any:
        try:
            return deserialize(raw)
        except DecodeError:
            return _Undecodable()

    return attempt


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _only_error(group: ExceptionGroup[Exception]) -> Exception | None:
    """Returns the one exception of a task group of which one task has failed."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        if len(error.exceptions) != 1:
            return None
        error = error.exceptions[0]
    return error


def _fault(error: BaseException, method: RpcMethod) -> status_pb2.Status:
    error_id = uuid.uuid4().hex
    logger.error(
        "fault while serving an rpc",
        extra={"error_id": error_id, "method": method.full_name},
        exc_info=error,
    )
    return internal_status(error_id)


async def _end(context: Context, status: status_pb2.Status) -> None:
    made = rpc_status.to_status(status)
    kept = tuple(context.trailing_metadata() or ())
    await context.abort(made.code, made.details, (*kept, *made.trailing_metadata))
