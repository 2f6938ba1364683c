"""Broken stores: the real one behind a channel that breaks one rule.

A fault stands between the judge and a correct store. It may change what is sent, what comes back, or
answer by itself; so every broken store breaks one rule and keeps all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2
from sagentry.plugins.check.methods import CONTRACT_METHODS, Method

METHODS = {method.path: method for method in CONTRACT_METHODS}

Send = Callable[[str, Any], Awaitable[Any]]


class Fault:
    """Breaks nothing; subclasses and `Edits` do. One object serves one run."""

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        """Answers a call.

        Args:
            name: The method.
            request: The request; may be changed.
            send: Calls the correct store; raises AioRpcError.
        """
        return await send(name, request)


Edit = Callable[[Any], object]
EditBoth = Callable[[Any, Any], object]


@dataclass
class Edits(Fault):
    """Changes requests, then responses.

    Attributes:
        names: Methods that it is about, separated by blanks; empty means all.
        request: Changes a request in place.
        response: Changes (response, request) in place; may raise `refusal(…)`.
    """

    names: str = ""
    request: Edit = lambda _request: None
    response: EditBoth = lambda _response, _request: None

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if self.names and name not in self.names.split():
            return await send(name, request)
        request_id = request.context.request_id
        self.request(request)
        response = await send(name, request)
        response.request_id = request_id
        self.response(response, request)
        return response


@dataclass
class Unfenced(Fault):
    """Forgets to compare epochs."""

    highest: dict[str, int] = field(default_factory=dict)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        contexts = [group.context for group in getattr(request, "groups", ())]
        for context in contexts or [request.context]:
            key = f"{context.scope} {context.conversation_id}"
            self.highest[key] = max(context.owner_epoch, self.highest.get(key, 0))
            if name not in ("LoadState", "ListDisplayMessages"):
                context.owner_epoch = self.highest[key]
        response = await send(name, request)
        if name == "LoadState":
            key = f"{request.context.scope} {request.context.conversation_id}"
            epoch = max(response.found.owner_epoch, response.absent.owner_epoch)
            self.highest[key] = epoch
        return response


class BareErrors(Fault):
    """Sends errors without details."""

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        try:
            return await send(name, request)
        except grpc.aio.AioRpcError as error:
            raise refusal(error.code()) from error


@dataclass
class Forgives(Fault):
    """Answers a refused call as if it had been done.

    Attributes:
        name: The method.
        response: What it answers.
    """

    name: str
    response: Message

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        try:
            return await send(name, request)
        except grpc.aio.AioRpcError:
            if name != self.name:
                raise
            return self.response


@dataclass
class Refuses(Fault):
    """Refuses calls that are fine.

    Attributes:
        name: The method.
        when: Says of a request whether it is refused.
        code: How.
    """

    name: str
    when: Callable[[Any], bool]
    code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == self.name and self.when(request):
            raise refusal(self.code)
        return await send(name, request)


@dataclass
class LeaksUnscoped(Fault):
    """Takes calls for no tenant as calls for the last tenant."""

    last: Any = None

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        scope = request.context.scope
        if scope.HasField("scoped"):
            self.last = scope
        elif self.last is not None:
            scope.CopyFrom(self.last)
        return await send(name, request)


def scoped(edit: Edit) -> Edits:
    """Returns a fault that changes the tenant and partition of scoped calls."""

    def change(request: Any) -> None:
        if request.context.scope.HasField("scoped"):
            edit(request.context.scope.scoped)

    return Edits(request=change)


def joined_identity(scope: Any) -> None:
    """Makes one text of tenant and partition."""
    scope.tenant, scope.partition = f"{scope.tenant}:{scope.partition}", ""


def one_conversation(request: Any) -> None:
    """Puts everything into one conversation."""
    request.context.conversation_id = "one"


def sanitized(text: str) -> str:
    """Makes an id of anything."""
    return "".join(character for character in text if "!" <= character <= "~")[:256] or "x"


def guessed_scope(request: Any) -> None:
    """Takes no scope for unscoped."""
    if not request.context.HasField("scope"):
        request.context.scope.unscoped.SetInParent()


def refusal(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    """Returns an error as a client sees it, without details."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "broken on purpose")


def rows_of(response: Any) -> Iterator[display_pb2.DisplayMessage]:
    """Returns the rows of a response of any method."""
    match response:
        case display_pb.SaveMessageResponse():
            yield from response.saved.display_messages
        case display_pb.SaveSyntheticMessageResponse():
            yield response.saved.display_message
        case display_pb.UpdateToolStatusResponse() | display_pb.ResolveToolResultResponse():
            if response.HasField("updated"):
                yield response.updated.display_message
        case display_pb.ListDisplayMessagesResponse():
            yield from response.page.display_messages


class BrokenChannel:
    """A channel to a correct store with a fault in it; only what the judge's Session uses.

    Args:
        channel: To the correct store.
        fault: Breaks one rule.
    """

    def __init__(self, channel: grpc.aio.Channel, fault: Fault) -> None:
        self._channel = channel
        self._fault = fault

    def unary_unary(self, path: str, **_options: object) -> Callable[..., Awaitable[Any]]:
        """Returns what calls the method."""
        method = METHODS[path]

        async def call(request: bytes, timeout: float) -> Any:
            async def send(name: str, message: Message) -> Any:
                return await self._send(_named(method, name), message, timeout)

            return await self._fault.answer(method.name, method.request.FromString(request), send)

        return call

    async def _send(self, method: Method[Any, Any], request: Message, timeout: float) -> Any:
        send: Callable[..., Awaitable[Any]] = self._channel.unary_unary(
            method.path, response_deserializer=method.response.FromString
        )
        return await send(request.SerializeToString(), timeout=timeout)


def _named(method: Method[Any, Any], name: str) -> Method[Any, Any]:
    return METHODS[f"/{method.service}/{name}"]
