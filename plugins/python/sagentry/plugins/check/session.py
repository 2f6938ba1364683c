"""What a case works with: a channel, what the plugin declares, and names that nobody else uses."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from sagentry.api.plugin.v1 import call_context_pb2, plugin_pb2
from sagentry.api.type.v1 import scope_pb2
from sagentry.plugins.check.answer import Answer, shown
from sagentry.plugins.check.declared import declared_capabilities, declared_services
from sagentry.plugins.check.methods import GET_PLUGIN_INFO, Method, Q, R

_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A plugin under judgement. Cases share it and run one after the other.

    Attributes:
        channel: Where calls go. `dataclasses.replace(session, channel=…)` sends them elsewhere, for
            example through a proxy.
        info: What the plugin said of itself when it was attached.
        asked: Full names of the contracts that the operator asked to judge; empty means all that
            are declared.
        patience: Factor of all deadlines. Below 1 it makes tests of slow plugins fast.
        run: Part of every name of this run, so that runs against one store never meet.
    """

    channel: grpc.aio.Channel
    info: plugin_pb2.GetPluginInfoResponse
    asked: frozenset[str] = frozenset()
    patience: float = 1.0
    run: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def services(self) -> tuple[str, ...]:
        """Full names of the contracts that the plugin declares."""
        return declared_services(self.info)

    @property
    def capabilities(self) -> frozenset[str]:
        """Names of the capabilities that the plugin declares, with their prefixes."""
        return declared_capabilities(self.info)

    def name(self, kind: str) -> str:
        """Returns a name that was never used before, for example of a tenant: `tenant-1f…`."""
        return f"{kind}-{self.run}-{secrets.token_hex(4)}"

    def scope(self, tenant: str = "", partition: str = "") -> scope_pb2.Scope:
        """Returns a scope of that tenant, or of a new one."""
        scoped = scope_pb2.Scoped(tenant=tenant or self.name("tenant"), partition=partition)
        return scope_pb2.Scope(scoped=scoped)

    def context(
        self,
        *,
        scope: scope_pb2.Scope | None = None,
        conversation_id: str = "",
        request_id: str = "",
        owner_epoch: int = 0,
        seconds: float = 5.0,
    ) -> call_context_pb2.CallContext:
        """Returns the context of a call, with new names for what is not given.

        Args:
            scope: For whom; by default a new tenant.
            conversation_id: By default a new one.
            request_id: By default a new one.
            owner_epoch: 0 means no fence.
            seconds: The budget.
        """
        return call_context_pb2.CallContext(
            scope=scope if scope is not None else self.scope(),
            conversation_id=conversation_id or self.name("conversation"),
            request_id=request_id or self.name("request"),
            owner_epoch=owner_epoch,
            budget=Duration(seconds=int(seconds)),
        )

    def plugin_context(self) -> call_context_pb2.CallContext:
        """Returns a context as PluginService gets it: request_id and budget only."""
        return call_context_pb2.CallContext(
            request_id=self.name("request"), budget=Duration(seconds=int(GET_PLUGIN_INFO.seconds))
        )

    async def get_info(self) -> Answer[plugin_pb2.GetPluginInfoResponse]:
        """Asks the plugin again who it is."""
        request = plugin_pb2.GetPluginInfoRequest(
            context=self.plugin_context(),
            host_name="sagentry plugin check",
            host_version="1",
            contracts=list(self.services),
        )
        return await self.call(GET_PLUGIN_INFO, request)

    async def call(self, method: Method[Q, R], request: Q) -> Answer[R]:
        """Calls a method with the contract's deadline; never raises for what the plugin does."""
        return await self.call_raw(
            method, request.SerializeToString(), f"{method.name} {shown(request)}"
        )

    async def call_raw(self, method: Method[Q, R], request: bytes, sent: str) -> Answer[R]:
        """Calls a method with bytes, for requests that the types cannot express.

        Args:
            method: The method.
            request: The encoded request.
            sent: What it is, for people.
        """
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, R] = self.channel.unary_unary(
            method.path, response_deserializer=method.response.FromString
        )
        started = time.monotonic()
        try:
            response = await call(request, timeout=method.seconds * self.patience)
        except grpc.aio.AioRpcError as error:
            details = _details(error)
            return Answer(
                sent=sent,
                code=error.code(),
                message=error.details() or "",
                status=_status(details),
                details_bytes=len(details),
                seconds=time.monotonic() - started,
            )
        return Answer(
            sent=sent,
            code=grpc.StatusCode.OK,
            response=response,
            seconds=time.monotonic() - started,
        )


def _details(error: grpc.aio.AioRpcError) -> bytes:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return value
    return b""


def _status(details: bytes) -> status_pb2.Status | None:
    if not details:
        return None
    try:
        return status_pb2.Status.FromString(details)
    except DecodeError:
        return None
