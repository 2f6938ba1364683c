"""Answers for methods that are in the contract and not in this version of the server."""

# ruff: noqa: ANN401 stands for methods of any type
from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from sagentry.server.errors import NotYetAvailableError

ServicerT = TypeVar("ServicerT")


def answers_not_yet(
    service: ServiceDescriptor,
) -> Callable[[type[ServicerT]], type[ServicerT]]:
    """Completes a servicer class: each method that it does not define itself is "not yet".

    Such a method fails with UNIMPLEMENTED / NOT_YET_AVAILABLE. Which ones those are is found out
    from the contract, so a method stops being one of them by being written.
    """

    def complete(servicer: type[ServicerT]) -> type[ServicerT]:
        for method in service.methods:
            if method.name not in vars(servicer):
                setattr(servicer, method.name, _not_yet(method))
        return servicer

    return complete


def _not_yet(method: MethodDescriptor) -> Callable[..., Any]:
    service = method.containing_service.full_name

    def refuse() -> NoReturn:
        raise NotYetAvailableError(f"{service}/{method.name}")

    # Any: the servicer, request and context of whatever method this stands for.
    async def answer(_self: Any, _request: Any, _context: Any) -> NoReturn:
        refuse()

    async def stream(_self: Any, _request: Any, _context: Any) -> AsyncIterator[Any]:
        refuse()
        yield  # makes it the generator that a streaming method is

    return stream if method.server_streaming else answer
