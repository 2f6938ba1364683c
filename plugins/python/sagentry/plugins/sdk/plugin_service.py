"""PluginService, served from what the plugin declares."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.sdk.binding import BoundMethod, Handler, Kind, MixedKindsError, bound_handler
from sagentry.plugins.sdk.call import Call
from sagentry.plugins.sdk.contracts import PLUGIN_SERVICE
from sagentry.plugins.sdk.declaration import Declaration
from sagentry.plugins.sdk.errors import InvalidFieldError

logger = logging.getLogger(__name__)

AttachmentHook: TypeAlias = Callable[[plugin_pb2.ReportAttachmentRequest], Awaitable[None] | None]
"""Told what came of each attachment. A coroutine function only in an asynchronous plugin."""


def plugin_service(
    declaration: Declaration, *, kind: Kind, on_attachment: AttachmentHook | None = None
) -> list[BoundMethod]:
    """Returns the methods of PluginService.

    Args:
        declaration: What GetPluginInfo answers.
        kind: How the plugin's methods run.
        on_attachment: Called for each ReportAttachment, before it is answered. What it raises is
            answered like the error of any method.

    Raises:
        MixedKindsError: if the hook is a coroutine function and the plugin is synchronous.
    """
    if kind is Kind.SYNCHRONOUS and inspect.iscoroutinefunction(on_attachment):
        raise MixedKindsError("on_attachment is `async def`, the plugin's methods are `def`")
    service = _Service(declaration, on_attachment)
    functions: dict[str, Handler] = {
        "GetPluginInfo": service.get_plugin_info,
        "ReportAttachment": service.report_attachment,
    }
    if kind is Kind.ASYNCHRONOUS:
        functions = {
            "GetPluginInfo": service.get_plugin_info_soon,
            "ReportAttachment": service.report_attachment_soon,
        }
    return [
        BoundMethod(
            descriptor=method,
            handler=bound_handler(
                method,
                functions[method.name],
                plugin=declaration.name,
                kind=kind,
                concerns_tenant=False,
            ),
        )
        for method in PLUGIN_SERVICE.methods
    ]


class _Service:
    def __init__(self, declaration: Declaration, on_attachment: AttachmentHook | None) -> None:
        self._info = declaration.info
        self._on_attachment = on_attachment

    def get_plugin_info(
        self, request: plugin_pb2.GetPluginInfoRequest, _call: Call
    ) -> plugin_pb2.GetPluginInfoResponse:
        logger.info("host %s %s asks who we are", request.host_name, request.host_version)
        response = plugin_pb2.GetPluginInfoResponse()
        response.CopyFrom(self._info)
        return response

    async def get_plugin_info_soon(
        self, request: plugin_pb2.GetPluginInfoRequest, call: Call
    ) -> plugin_pb2.GetPluginInfoResponse:
        return self.get_plugin_info(request, call)

    def report_attachment(
        self, request: plugin_pb2.ReportAttachmentRequest, _call: Call
    ) -> plugin_pb2.ReportAttachmentResponse:
        self._log(request)
        if self._on_attachment is not None:
            self._on_attachment(request)
        return plugin_pb2.ReportAttachmentResponse()

    async def report_attachment_soon(
        self, request: plugin_pb2.ReportAttachmentRequest, _call: Call
    ) -> plugin_pb2.ReportAttachmentResponse:
        self._log(request)
        if self._on_attachment is not None:
            pending = self._on_attachment(request)
            if pending is not None:
                await pending
        return plugin_pb2.ReportAttachmentResponse()

    def _log(self, request: plugin_pb2.ReportAttachmentRequest) -> None:
        if request.outcome == plugin_pb2.ATTACHMENT_OUTCOME_UNSPECIFIED:
            raise InvalidFieldError("outcome", "required")
        if request.outcome == plugin_pb2.ATTACHMENT_OUTCOME_REFUSED:
            logger.warning("the host refuses this plugin")
        else:
            logger.info("attached: the host uses %s", ", ".join(request.contracts) or "nothing")
        for problem in request.problems:
            logger.warning(
                "the host reports %s %s: %s", problem.reason, problem.contract, problem.message
            )
