"""Unit tests of synchronous servicers with grpcio-testing.

Nothing asynchronous can be tested so: grpcio-testing takes a coroutine for an answer and passes it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.protobuf import message_factory

from sagentry.plugins.sdk.binding import (
    BoundMethod,
    Handler,
    Kind,
    MixedKindsError,
    bind,
    kind_of,
    methods_of,
)
from sagentry.plugins.sdk.contracts import contracts_of


def bound(servicer: object, *, name: str = "plugin.test") -> object:
    """Returns a stand-in for the servicer that answers as the served plugin would.

    Give it to grpcio-testing: `server_from_dictionary({SERVICE: bound(Store())}, clock)`. Methods
    that the servicer lacks answer UNIMPLEMENTED. A failed call has its status *and* an empty
    response, because only so does grpcio-testing keep the details of an error.

    Args:
        servicer: A synchronous servicer.
        name: Name of the plugin, the domain of its errors.

    Raises:
        MixedKindsError: if the servicer is asynchronous.
    """
    stand_in = type("Bound", (), {})()
    for contract in contracts_of(servicer):
        if kind_of(methods_of(contract, servicer)) is Kind.ASYNCHRONOUS:
            raise MixedKindsError(f"{type(servicer).__name__} is asynchronous: serve it instead")
        for method in contract.service.methods:
            setattr(stand_in, method.name, _unimplemented)
        for each in bind(contract, servicer, plugin=name, kind=Kind.SYNCHRONOUS):
            setattr(stand_in, each.descriptor.name, _keeping_details(each))
    return stand_in


class _AbortedError(Exception):
    """The handler has ended the call."""


class _Context:
    """The context of grpcio-testing, whose own `abort` forgets the details."""

    def __init__(self, inner: grpc.ServicerContext) -> None:
        self._inner = inner

    def time_remaining(self) -> float | None:
        return self._inner.time_remaining()

    def set_trailing_metadata(self, metadata: Any) -> None:  # noqa: ANN401  of grpcio
        self._inner.set_trailing_metadata(metadata)

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self._inner.set_code(code)
        self._inner.set_details(details)
        raise _AbortedError


def _keeping_details(method: BoundMethod) -> Handler:
    response = message_factory.GetMessageClass(method.descriptor.output_type)

    def handle(request: object, context: grpc.ServicerContext) -> Any:  # noqa: ANN401  any response
        try:
            return method.handler(request, _Context(context))
        except _AbortedError:
            return response()

    return handle


def _unimplemented(_request: object, context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
