"""Health of the server, of each service and of each plugin, by `grpc.health.v1`."""

# ruff: noqa: ANN401 List is newer than the published stubs
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sagentry.server.domain.plugins import PluginState
from sagentry.server.ports import PluginDirectory
from sagentry.server.rpc.names import (
    ADMIN_SERVICE,
    AGENT_SERVICE,
    EVENT_SERVICE,
    HEALTH_SERVICE,
    REFLECTION_V1_SERVICE,
    REFLECTION_V1ALPHA_SERVICE,
)

OVERALL = ""
"""Name that stands for the whole server."""

_NEEDING_PLUGINS = (OVERALL, AGENT_SERVICE, EVENT_SERVICE)
_NEEDING_NOTHING = (
    ADMIN_SERVICE,
    HEALTH_SERVICE,
    REFLECTION_V1_SERVICE,
    REFLECTION_V1ALPHA_SERVICE,
)

_Status = health_pb2.HealthCheckResponse
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def plugin_health_name(plugin: str) -> str:
    """Returns the name under which the health of a plugin is asked for."""
    return f"plugin/{plugin}"


class Health(health_pb2_grpc.HealthServicer):
    """Answers the health service.

    - Before `start_serving` and from `drain` on everything is NOT_SERVING.
    - A plugin is SERVING while it is attached.
    - The server, agents and events are SERVING once every configured plugin has attached; a
      plugin that is lost later does not change that, because its writes wait in the journal.
    - The admin service, health and reflection are SERVING, so that operators see what is missing.

    The servicer of grpcio-health-checking is not used: it changes in coroutines only, and the
    change of a plugin is told in a plain call.
    """

    def __init__(self, plugins: PluginDirectory) -> None:
        self._plugins = plugins
        self._is_serving = False
        self._is_complete = False
        self._changed = asyncio.Event()
        self._shown: dict[str, bool] = {}
        self.refresh()

    def start_serving(self) -> None:
        """Shows from now on what is so."""
        self._is_serving = True
        self.refresh()

    def drain(self) -> None:
        """Shows NOT_SERVING for everything."""
        self._is_serving = False
        self.refresh()

    def refresh(self) -> None:
        """Takes over what the plugins are like now and wakes watchers if anything is different."""
        wanted = self._wanted()
        if wanted != self._shown:
            self._shown = wanted
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(  # noqa: N802 the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        """Returns the health of one name; NOT_FOUND when there is none."""
        if request.service not in self._shown:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no service of that name")
        return self._response(request.service)

    async def List(  # noqa: N802 the protocol's name
        self,
        _request: Any,
        _context: _Context,
    ) -> Any:
        """Returns the health of all names."""
        statuses = {name: self._response(name) for name in self._shown}
        # Any: the published stubs are older than this method.
        messages: Any = health_pb2
        return messages.HealthListResponse(statuses=statuses)

    async def Watch(  # noqa: N802 the protocol's name
        self, request: health_pb2.HealthCheckRequest, _context: _Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yields the health of one name, now and whenever it is different."""
        sent = None
        while True:
            changed = self._changed
            response = self._response(request.service)
            if response.status != sent:
                sent = response.status
                yield response
            else:
                await changed.wait()

    def _response(self, name: str) -> health_pb2.HealthCheckResponse:
        if name not in self._shown:
            return _Status(status=_Status.SERVICE_UNKNOWN)
        return _Status(status=_Status.SERVING if self._shown[name] else _Status.NOT_SERVING)

    def _wanted(self) -> dict[str, bool]:
        views = self._plugins.list_plugins()
        self._is_complete = self._is_complete or all(view.identity is not None for view in views)
        wanted = dict.fromkeys(_NEEDING_NOTHING, self._is_serving)
        wanted |= dict.fromkeys(_NEEDING_PLUGINS, self._is_serving and self._is_complete)
        wanted |= {
            plugin_health_name(view.name): self._is_serving and view.state is PluginState.ATTACHED
            for view in views
        }
        return wanted
