"""The admin service: plugins, and the end of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import grpc.aio

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as pb_grpc
from sagentry.server.domain.ids import is_valid_id
from sagentry.server.domain.plugins import PluginFailure
from sagentry.server.errors import InvalidInputError
from sagentry.server.ports import PluginDirectory
from sagentry.server.rpc.names import ADMIN
from sagentry.server.rpc.not_yet import answers_not_yet
from sagentry.server.rpc.page_tokens import decode_page_token, encode_page_token, page_size_of
from sagentry.server.rpc.plugins_pb import plugin_failure_to_pb, plugin_to_pb

BeginDrain = Callable[[timedelta | None], datetime]
"""Begins the drain, given the longest time it may take, and returns when it ends at the latest."""

_LONGEST_BUDGET = timedelta(days=1)

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@answers_not_yet(ADMIN)
class AdminServicer(pb_grpc.AdminServiceServicer):
    """Translates; the work is done by the directory and the drain."""

    def __init__(self, plugins: PluginDirectory, begin_drain: BeginDrain) -> None:
        self._plugins = plugins
        self._begin_drain = begin_drain

    async def ListPlugins(  # noqa: N802 the contract's name
        self, _request: pb.ListPluginsRequest, _context: _Context
    ) -> pb.ListPluginsResponse:
        """Returns all configured plugins."""
        views = self._plugins.list_plugins()
        return pb.ListPluginsResponse(plugins=[plugin_to_pb(view) for view in views])

    async def GetPlugin(  # noqa: N802 the contract's name
        self, request: pb.GetPluginRequest, _context: _Context
    ) -> pb.GetPluginResponse:
        """Returns one plugin."""
        name = _plugin_name("name", request.name)
        return pb.GetPluginResponse(plugin=plugin_to_pb(self._plugins.get_plugin(name)))

    async def ListFailures(  # noqa: N802 the contract's name
        self, request: pb.ListFailuresRequest, _context: _Context
    ) -> pb.ListFailuresResponse:
        """Returns a page of the newest failures."""
        plugin = _plugin_name("plugin", request.plugin) if request.plugin else None
        size = page_size_of(request.page_size)
        list_name = f"failures/{plugin or ''}"
        failures = self._plugins.list_failures(plugin)
        start = 0
        if request.page_token:
            place = decode_page_token(request.page_token, list_name, parts=_PLACE_PARTS)
            start = _index_after(failures, place)
        page = failures[start : start + size]
        response = pb.ListFailuresResponse(
            failures=[plugin_failure_to_pb(failure) for failure in page]
        )
        if start + size < len(failures):
            response.next_page_token = encode_page_token(list_name, _place(page[-1]))
        return response

    async def TestCall(  # noqa: N802 the contract's name
        self, request: pb.TestCallRequest, _context: _Context
    ) -> pb.TestCallResponse:
        """Tries a plugin now; a plugin that fails is an answer."""
        name = _plugin_name("plugin", request.plugin)
        begin, begin_time = time.monotonic(), datetime.now(UTC)
        view = await self._plugins.test_plugin(name)
        response = pb.TestCallResponse(plugin=plugin_to_pb(view))
        if not view.problem:
            response.elapsed.FromTimedelta(timedelta(seconds=time.monotonic() - begin))
            return response
        failure = next(iter(self._plugins.list_failures(name)), None)
        if failure is not None and failure.time >= begin_time:
            response.failure.CopyFrom(plugin_failure_to_pb(failure))
        return response

    async def DrainServer(  # noqa: N802 the contract's name
        self, request: pb.DrainServerRequest, _context: _Context
    ) -> pb.DrainServerResponse:
        """Begins the drain."""
        response = pb.DrainServerResponse()
        response.end_time.FromDatetime(self._begin_drain(_budget(request)))
        return response


def _plugin_name(field: str, name: str) -> str:
    if not is_valid_id(name):
        raise InvalidInputError(field, "must be 1 to 256 characters in the range ! to ~")
    return name


def _budget(request: pb.DrainServerRequest) -> timedelta | None:
    if not request.HasField("budget"):
        return None
    seconds = request.budget.seconds + request.budget.nanos / 1e9
    if not 0 <= seconds <= _LONGEST_BUDGET.total_seconds():
        raise InvalidInputError("budget", "must be 0 s to one day")
    return timedelta(seconds=seconds)


_PLACE_PARTS = 4


def _place(failure: PluginFailure) -> tuple[str, str, str, str]:
    # Not a number: failures are added in front and lost behind while somebody turns pages.
    return (failure.time.isoformat(), failure.plugin, failure.method, failure.request_id)


def _index_after(failures: Sequence[PluginFailure], place: tuple[str, ...]) -> int:
    """Returns where the page after the place begins, also when the place itself is gone."""
    try:
        time_of_place = datetime.fromisoformat(place[0])
    except ValueError:
        problem = "is malformed"
        raise InvalidInputError("page_token", problem, reason="PAGE_TOKEN_INVALID") from None
    for index, failure in enumerate(failures):
        if _place(failure) == place:
            return index + 1
        if failure.time < time_of_place:
            return index
    return len(failures)
