"""A plugin of generated servicers in this process, bound without a plugin host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.server.domain.plugins import PluginIdentity
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import PluginError, StaleEpochError
from sagentry.server.plugin.binding import ContractViolation
from sagentry.server.ports import PluginCall
from tests.support.fake_plugins import IDENTITY

CALL = PluginCall(
    scope=Scope(ScopeKey(ScopeKind.SCOPED, "acme", "u-1"), "text/plain", b"token"),
    conversation_id="c-1",
    agent_id="a-1",
    request_id="q-1",
    owner_epoch=7,
    run_id="r-1",
)

_REASONS = {4: "PLUGIN_TIMEOUT", 8: "PLUGIN_REFUSED", 14: "PLUGIN_UNAVAILABLE"}


class DirectBinding:
    """Calls a servicer; every failure is a PluginError with the reason that the test looks for."""

    plugin = "store"

    def __init__(self, channel: grpc.aio.Channel, service: str) -> None:
        self._channel = channel
        self._service = service
        self.declared = plugin_pb2.Contract(service=service)
        self.identity: PluginIdentity = IDENTITY
        self.methods: list[str] = []
        self.requests: list[Any] = []

    async def invoke(
        self,
        method: str,
        request: Message,
        response_type: type[Any],
        read: Callable[[Any], Any],
        *,
        timeout: timedelta | None = None,  # noqa: ARG002 - the protocol's
    ) -> Any:
        self.methods.append(method)
        self.requests.append(request)
        rpc = self._channel.unary_unary(
            f"/{self._service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response_type.FromString,
        )
        try:
            return read(await rpc(request))
        except ContractViolation as violation:
            raise self._error("PLUGIN_FAULT", str(violation), method) from violation
        except grpc.aio.AioRpcError as error:
            code: int = error.code().value[0]
            raise self.failure(
                method, code=code, reason=error.details() or "", message="", facts={}
            ) from error

    def failure(
        self, method: str, *, code: int, reason: str, message: str, facts: dict[str, str]
    ) -> PluginError:
        if reason == "STALE_EPOCH":
            return StaleEpochError(
                reason, message, plugin=self.plugin, method=method,
                elapsed=timedelta(), budget=timedelta(), facts=facts,
            )  # fmt: skip
        return self._error(_REASONS.get(code, "PLUGIN_FAULT"), message, method, facts)

    def _error(
        self, reason: str, problem: str, method: str, facts: dict[str, str] | None = None
    ) -> PluginError:
        return PluginError(
            reason, problem, plugin=self.plugin, method=method,
            elapsed=timedelta(), budget=timedelta(), facts=facts,
        )  # fmt: skip


@asynccontextmanager
async def bound(
    add: Callable[[Any, grpc.aio.Server], None], servicer: Any, service: str
) -> AsyncIterator[DirectBinding]:
    """Serves a servicer on a port of loopback and binds it."""
    server = grpc.aio.server()
    add(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = (("grpc.enable_http_proxy", 0),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield DirectBinding(channel, service)
    await server.stop(None)
