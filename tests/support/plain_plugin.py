"""A plugin from plain stubs, as an author without an SDK writes it. It keeps every rule of level 0.

Subclasses that break one rule each are in `broken_plugins`.
"""
# ruff: noqa: N802  methods are named as in the contract

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import agent_persistence_pb2_grpc as agent_grpc
from sagentry.api.plugin.v1 import call_context_pb2, plugin_pb2, plugin_pb2_grpc
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as preprocessor_grpc

NAME = "com.example.plain"
PLUGIN = "sagentry.api.plugin.v1.PluginService"
AGENT_PERSISTENCE = "sagentry.api.plugin.v1.AgentPersistenceService"
DISPLAY_MESSAGE_PERSISTENCE = "sagentry.api.plugin.v1.DisplayMessagePersistenceService"
MESSAGE_PREPROCESSOR = "sagentry.api.plugin.v1.MessagePreprocessorService"

SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Request(Protocol):
    """A request of a plugin's method."""

    @property
    def context(self) -> call_context_pb2.CallContext: ...


class PlainPlugin(
    plugin_pb2_grpc.PluginServiceServicer,
    agent_grpc.AgentPersistenceServiceServicer,
    preprocessor_grpc.MessagePreprocessorServiceServicer,
    health_pb2_grpc.HealthServicer,
):
    """Serves two contracts, required methods only; every hook is correct."""

    error_domain = NAME
    reflected: tuple[str, ...] = (PLUGIN, AGENT_PERSISTENCE, MESSAGE_PREPROCESSOR)

    def info(self) -> plugin_pb2.GetPluginInfoResponse:
        info = plugin_pb2.GetPluginInfoResponse(
            name=NAME,
            version="1.2.3",
            instance_id="start-1",
            capabilities=[
                plugin_pb2.PLUGIN_CAPABILITY_ADVERTISED,
                plugin_pb2.PLUGIN_CAPABILITY_REPORT_ATTACHMENT,
            ],
        )
        agent = info.contracts.add(service=AGENT_PERSISTENCE)
        agent.agent_persistence.capabilities.append(
            agent_pb.AGENT_PERSISTENCE_CAPABILITY_ADVERTISED
        )
        preprocessor = info.contracts.add(service=MESSAGE_PREPROCESSOR)
        preprocessor.message_preprocessor.capabilities.append(
            preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_ADVERTISED
        )
        return info

    def health(self, service: str) -> health_pb2.HealthCheckResponse | None:
        return SERVING if service in ("", AGENT_PERSISTENCE, MESSAGE_PREPROCESSOR) else None

    def request_id_problem(self, request_id: str) -> str:
        if re.fullmatch(r"[!-~]{1,256}", request_id):
            return ""
        return "context.request_id: must match [!-~]{1,256}"

    def violations(self) -> list[str]:
        return ["context.request_id"]

    async def check(self, request: Request, context: Context) -> None:
        """Refuses a request that is not allowed."""
        problem = self.request_id_problem(request.context.request_id)
        if problem:
            await self.refuse(context, problem)

    async def refuse(self, context: Context, message: str) -> NoReturn:
        info = error_details_pb2.ErrorInfo(reason="FIELD_INVALID", domain=self.error_domain)
        status = status_pb2.Status(code=3, message=message)
        status.details.add().Pack(info)
        bad = error_details_pb2.BadRequest()
        for field in self.violations():
            bad.field_violations.add(field=field, description="malformed")
        if bad.field_violations:
            status.details.add().Pack(bad)
        await context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError

    async def GetPluginInfo(
        self, request: plugin_pb2.GetPluginInfoRequest, context: Context
    ) -> plugin_pb2.GetPluginInfoResponse:
        await self.check(request, context)
        info = self.info()
        info.request_id = request.context.request_id
        return info

    async def ReportAttachment(
        self, request: plugin_pb2.ReportAttachmentRequest, context: Context
    ) -> plugin_pb2.ReportAttachmentResponse:
        await self.check(request, context)
        return plugin_pb2.ReportAttachmentResponse(request_id=request.context.request_id)

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        status = self.health(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return status

    async def PersistState(
        self, request: agent_pb.PersistStateRequest, context: Context
    ) -> agent_pb.PersistStateResponse:
        await self.check(request, context)
        response = agent_pb.PersistStateResponse(request_id=request.context.request_id)
        response.saved.revision = request.revision
        return response

    async def LoadState(
        self, request: agent_pb.LoadStateRequest, context: Context
    ) -> agent_pb.LoadStateResponse:
        await self.check(request, context)
        response = agent_pb.LoadStateResponse(request_id=request.context.request_id)
        response.absent.SetInParent()
        return response

    async def PreprocessMessage(
        self, request: preprocessor_pb.PreprocessMessageRequest, context: Context
    ) -> preprocessor_pb.PreprocessMessageResponse:
        await self.check(request, context)
        response = preprocessor_pb.PreprocessMessageResponse()
        response.request_id = request.context.request_id
        response.accepted.SetInParent()
        return response


@asynccontextmanager
async def serving_plain(plugin: PlainPlugin) -> AsyncIterator[str]:
    """Serves the plugin meanwhile and yields its address."""
    server = grpc.aio.server()
    plugin_pb2_grpc.add_PluginServiceServicer_to_server(plugin, server)
    agent_grpc.add_AgentPersistenceServiceServicer_to_server(plugin, server)
    preprocessor_grpc.add_MessagePreprocessorServiceServicer_to_server(plugin, server)
    health_pb2_grpc.add_HealthServicer_to_server(plugin, server)
    if plugin.reflected:
        reflection.enable_server_reflection(plugin.reflected, server)
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'p.sock'}"
        server.add_insecure_port(address)
        await server.start()
        try:
            yield address
        finally:
            await server.stop(None)
