"""Puts the rules of all contracts around a servicer's methods.

Before a method: the context is checked. After it: request_id is filled in, a missing outcome is
caught. Around it: a `PluginError` becomes its status, anything else INTERNAL with an error id.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.plugins.sdk.call import Call, call_of
from sagentry.plugins.sdk.contracts import Contract
from sagentry.plugins.sdk.errors import PluginError, number_of, status_of

logger = logging.getLogger(__name__)

Context = Any  # grpc.ServicerContext or grpc.aio.ServicerContext[Any, Any]: kept apart by Kind
Handler = Callable[[Any, Context], Any]  # of one method's request and response types


class _Request(Protocol):
    @property
    def context(self) -> call_context_pb2.CallContext: ...


class Kind(enum.Enum):
    """How a servicer's methods run."""

    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"


class MixedKindsError(TypeError):
    """Some methods are `def` and some are `async def`."""


class OutcomeMissingError(Exception):
    """A method returned something that the contract does not allow."""


@dataclass(frozen=True, slots=True)
class BoundMethod:
    """One method with the rules around it.

    Attributes:
        descriptor: The method.
        handler: Takes (request, gRPC context); a coroutine function if the kind is asynchronous.
    """

    descriptor: MethodDescriptor
    handler: Handler

    def rpc_handler(self, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
        """Returns what a gRPC server registers; `handler` is this one's or wraps it."""
        request = message_factory.GetMessageClass(self.descriptor.input_type)
        response = message_factory.GetMessageClass(self.descriptor.output_type)
        return grpc.unary_unary_rpc_method_handler(
            handler,
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )


def kind_of(served: Mapping[str, object]) -> Kind:
    """Returns how the methods run.

    Args:
        served: Methods by a name that the author knows, for example `Store.LoadState`.

    Raises:
        MixedKindsError: if they are not all of one kind.
    """
    kinds = {name: inspect.iscoroutinefunction(method) for name, method in served.items()}
    if len(set(kinds.values())) > 1:
        plain = sorted(name for name, is_async in kinds.items() if not is_async)
        coroutines = sorted(name for name, is_async in kinds.items() if is_async)
        raise MixedKindsError(
            "all methods of a plugin are `def` or all are `async def`: "
            f"{', '.join(plain)} is `def`, {', '.join(coroutines)} is `async def`"
        )
    return Kind.ASYNCHRONOUS if True in kinds.values() else Kind.SYNCHRONOUS


def methods_of(contract: Contract, servicer: object) -> dict[str, object]:
    """Returns the methods that the servicer implements, by `Class.Method`."""
    return {
        f"{type(servicer).__name__}.{name}": getattr(servicer, name)
        for name in sorted(contract.implemented_by(servicer))
    }


def bind(contract: Contract, servicer: object, *, plugin: str, kind: Kind) -> list[BoundMethod]:
    """Returns the implemented methods of one contract with the rules around them.

    Args:
        contract: The contract.
        servicer: Its implementation.
        plugin: Name of the plugin, the domain of its errors.
        kind: How all its methods run.
    """
    implemented = contract.implemented_by(servicer)
    # A servicer of the generated class is told gRPC's own context, as its signature says.
    wants_call = isinstance(servicer, contract.bases[0])
    return [
        BoundMethod(
            descriptor=method,
            handler=bound_handler(
                method,
                getattr(servicer, method.name),
                plugin=plugin,
                kind=kind,
                wants_call=wants_call,
                concerns_tenant=method.name not in contract.tenantless,
            ),
        )
        for method in contract.service.methods
        if method.name in implemented
    ]


def bound_handler(
    method: MethodDescriptor,
    function: Handler,
    *,
    plugin: str,
    kind: Kind,
    wants_call: bool = True,
    concerns_tenant: bool = True,
) -> Handler:
    """Returns the function with the rules around it.

    Args:
        method: The method that it implements.
        function: The implementation.
        plugin: Name of the plugin, the domain of its errors.
        kind: Whether the function is a coroutine function.
        wants_call: Whether its second argument is a `Call`, not gRPC's context.
        concerns_tenant: Whether its context names a tenant.
    """
    rules = _Rules(method, plugin, wants_call=wants_call, concerns_tenant=concerns_tenant)
    if kind is Kind.ASYNCHRONOUS:
        return _asynchronous(rules, function)
    return _synchronous(rules, function)


class _Rules:
    """What happens before and after one method, whatever its kind."""

    def __init__(
        self, method: MethodDescriptor, plugin: str, *, wants_call: bool, concerns_tenant: bool
    ) -> None:
        self._method = method
        self._plugin = plugin
        self._wants_call = wants_call
        self._concerns_tenant = concerns_tenant
        self._response = message_factory.GetMessageClass(method.output_type)
        self._has_outcome = "outcome" in method.output_type.oneofs_by_name

    def argument(self, request: _Request, context: Context) -> Call | Context:
        call = call_of(
            request.context,
            concerns_tenant=self._concerns_tenant,
            seconds_left=context.time_remaining(),
        )
        return call if self._wants_call else context

    def finish(self, request: _Request, response: Any) -> Any:  # noqa: ANN401  what came back
        if not isinstance(response, self._response):
            raise OutcomeMissingError(
                f"{self._method.full_name} returned {type(response).__name__}, "
                f"not {self._method.output_type.name}"
            )
        if self._has_outcome and response.WhichOneof("outcome") is None:
            raise OutcomeMissingError(f"{self._method.full_name} returned no outcome")
        response.request_id = request.context.request_id  # type: ignore[attr-defined]  # field 1 of all
        return response

    def is_abort(self, error: Exception) -> bool:
        # `context.abort` of the synchronous library raises a bare Exception.
        return not self._wants_call and type(error) is Exception and not error.args

    def status(self, request: _Request, error: BaseException) -> status_pb2.Status:
        if isinstance(error, PluginError):
            return status_of(error, self._plugin)
        error_id = uuid.uuid4().hex
        logger.error(
            "call failed: %s, error id %s",
            self._method.full_name,
            error_id,
            exc_info=error,
            extra={"request_id": request.context.request_id},
        )
        text = f"internal error, id {error_id}"
        status = status_pb2.Status(code=number_of(grpc.StatusCode.INTERNAL), message=text)
        info = error_details_pb2.ErrorInfo(reason="INTERNAL", domain=self._plugin)
        info.metadata["error_id"] = error_id
        status.details.add().Pack(info)
        return status


def _asynchronous(rules: _Rules, function: Handler) -> Handler:
    async def handle(request: _Request, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: ANN401  any response
        try:
            argument = rules.argument(request, context)
            response = rules.finish(
                request, await cast("Awaitable[Any]", function(request, argument))
            )
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError as error:
            # Only a cancelled call may end so: an inner cancellation that escapes leaves the
            # caller without an answer until its own deadline.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            status = rules.status(request, error)
        except Exception as error:  # noqa: BLE001  the one place that turns errors into answers
            status = rules.status(request, error)
        else:
            return response
        return await _abort_soon(context, status)

    return handle


def _synchronous(rules: _Rules, function: Handler) -> Handler:
    def handle(request: _Request, context: grpc.ServicerContext) -> Any:  # noqa: ANN401  any response
        try:
            argument = rules.argument(request, context)
            return rules.finish(request, function(request, argument))
        except Exception as error:
            if rules.is_abort(error):
                raise
            status = rules.status(request, error)
        _abort(context, status)

    return handle


async def _abort_soon(
    context: grpc.aio.ServicerContext[Any, Any], status: status_pb2.Status
) -> NoReturn:
    sent = rpc_status.to_status(status)
    await context.abort(sent.code, sent.details, sent.trailing_metadata)


def _abort(context: grpc.ServicerContext, status: status_pb2.Status) -> NoReturn:
    sent = rpc_status.to_status(status)
    context.set_trailing_metadata(sent.trailing_metadata)
    context.abort(sent.code, sent.details)
