"""What all interceptors build on: one form of handler for the four kinds of RPC."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

import abc
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import grpc
import grpc.aio

# Any: handlers are generic in messages that interceptors never look into.
# Quoted: only their stubs make them generic.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Behavior = Callable[[Any, Context], Awaitable[Any]]
"""Takes the request (or their iterator) and returns the response; a streaming one writes its
responses to the context and returns None."""

Proceed = Callable[[Context], Awaitable[Any]]
"""What an interceptor surrounds: takes the context, or one that stands for it."""

_FACTORIES = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """A method.

    Attributes:
        service: Full name of its service.
        name: Its own name.
        is_response_streaming: Whether it answers with a stream.
    """

    service: str
    name: str
    is_response_streaming: bool

    @property
    def full_name(self) -> str:
        """Returns `package.Service/Method`."""
        return f"{self.service}/{self.name}"


def behavior_of(handler: Handler) -> Behavior:
    """Returns the handler's function in the one form that interceptors know."""
    function: Any = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    if inspect.iscoroutinefunction(function):
        behavior: Behavior = function
        return behavior
    if inspect.isasyncgenfunction(function):

        async def write_all(request: Any, context: Context) -> None:
            # Closed here and now, not by the garbage collector, when the RPC is cancelled.
            async with aclosing(function(request, context)) as responses:
                async for response in responses:
                    await context.write(response)

        return write_all

    async def refuse(_request: Any, _context: Context) -> None:
        # grpc would run it in a thread, where nothing of the server may be touched.
        message = f"{function!r} is neither a coroutine function nor an async generator function"
        raise TypeError(message)

    return refuse


def with_behavior(
    handler: Handler,
    behavior: Behavior,
    request_deserializer: Callable[[bytes], Any] | None,
    response_serializer: Callable[[Any], bytes] | None,
) -> Handler:
    """Returns a handler of the same kind that does something else."""
    factory: Any = _FACTORIES[handler.request_streaming, handler.response_streaming]
    made: Handler = factory(
        behavior,
        request_deserializer=request_deserializer,
        response_serializer=response_serializer,
    )
    return made


class SurroundingInterceptor(grpc.aio.ServerInterceptor, abc.ABC):
    """Does something around every RPC that has a handler.

    Everything is done while the handler runs, nothing while it is looked up: what raises there
    reaches the client as text, past the errors interceptor.
    """

    def __init__(self) -> None:
        self._surrounded: dict[str, tuple[Handler, Handler]] = {}

    @abc.abstractmethod
    async def surround(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves one RPC: awaits `proceed` once, or raises, and returns what it returned."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Returns the surrounded handler of the RPC; None when there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        path = handler_call_details.method
        known = self._surrounded.get(path)
        # Handlers are made once per method, so this is made once per method too.
        if known is None or known[0] is not handler:
            service, _, name = path.lstrip("/").rpartition("/")
            method = RpcMethod(service, name, handler.response_streaming)
            known = self._surrounded[path] = (handler, self._wrap(method, handler))
        return known[1]

    def _wrap(self, method: RpcMethod, handler: Handler) -> Handler:
        behavior = behavior_of(handler)

        async def surrounded(request: Any, context: Context) -> Any:
            return await self.surround(method, context, partial(behavior, request))

        return with_behavior(
            handler, surrounded, handler.request_deserializer, handler.response_serializer
        )
