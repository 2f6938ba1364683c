"""For each case of the judge a plugin that it must fail: one rule broken, all others kept."""
# ruff: noqa: ARG002, N802  methods are named as in the contract

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import plugin_pb2
from tests.support.plain_plugin import (
    AGENT_PERSISTENCE,
    DISPLAY_MESSAGE_PERSISTENCE,
    MESSAGE_PREPROCESSOR,
    NOT_SERVING,
    SERVING,
    Context,
    PlainPlugin,
    Request,
)

Info = plugin_pb2.GetPluginInfoResponse


@dataclass(frozen=True)
class Broken:
    """A broken plugin and how it must be judged.

    Attributes:
        make: Makes it.
        asked: What the operator asks for.
        patience: Factor of the judge's deadlines.
    """

    make: Callable[[], PlainPlugin]
    asked: frozenset[str] = frozenset()
    patience: float = 1.0


def says(edit: Callable[[Info], object]) -> Broken:
    """Returns a plugin whose GetPluginInfo answers something wrong."""

    class Says(PlainPlugin):
        def info(self) -> Info:
            info = super().info()
            edit(info)
            return info

    return Broken(Says)


def overrides(**members: object) -> Broken:
    """Returns a plugin with other members."""
    return Broken(type("Overrides", (PlainPlugin,), members))


def _preprocessor(info: Info) -> preprocessor_pb.MessagePreprocessorCapabilities:
    return info.contracts[1].message_preprocessor


def _wrong_arm(info: Info) -> None:
    info.contracts[1].agent_persistence.capabilities.append(
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_ADVERTISED
    )


def _unmarked_display(info: Info) -> None:
    contract = info.contracts.add(service=DISPLAY_MESSAGE_PERSISTENCE)
    contract.display_message_persistence.capabilities.append(
        display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_FENCING
    )


def _unmarked_agent(info: Info) -> None:
    info.contracts[0].agent_persistence.capabilities[:] = [
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_FENCING
    ]


def _unmarked_preprocessor(info: Info) -> None:
    _preprocessor(info).capabilities[:] = [
        preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_ALL
    ]


def _two_views(info: Info) -> None:
    _preprocessor(info).capabilities.extend(
        [
            preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_METADATA,
            preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_ALL,
        ]
    )


def _no_last_messages(info: Info) -> None:
    _preprocessor(info).capabilities.append(
        preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_LAST_MESSAGES
    )


def _lies_about_append(info: Info) -> None:
    info.contracts[0].agent_persistence.capabilities.append(
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_APPEND_STATE
    )


class ChangesItsMind(PlainPlugin):
    def __init__(self) -> None:
        self._versions = itertools.count()

    def info(self) -> Info:
        info = super().info()
        info.version = str(next(self._versions))
        return info


class NewInstanceEachTime(PlainPlugin):
    def __init__(self) -> None:
        self._starts = itertools.count()

    def info(self) -> Info:
        info = super().info()
        info.instance_id = f"start-{next(self._starts)}"
        return info


class AnswersForAnother(PlainPlugin):
    async def GetPluginInfo(
        self, request: plugin_pb2.GetPluginInfoRequest, context: Context
    ) -> plugin_pb2.GetPluginInfoResponse:
        info = await super().GetPluginInfo(request, context)
        info.request_id = "another"
        return info


class MixesUp(PlainPlugin):
    """Right for one call at a time; with several it answers all with the newest request_id."""

    def __init__(self) -> None:
        self._newest = ""
        self._another_came = asyncio.Event()

    async def GetPluginInfo(
        self, request: plugin_pb2.GetPluginInfoRequest, context: Context
    ) -> plugin_pb2.GetPluginInfoResponse:
        info = await super().GetPluginInfo(request, context)
        self._another_came.set()
        self._another_came = another = asyncio.Event()
        self._newest = request.context.request_id
        try:
            async with asyncio.timeout(0.05):
                await another.wait()
        except TimeoutError:
            pass
        info.request_id = self._newest
        return info


class HangsLater(PlainPlugin):
    def __init__(self) -> None:
        self._calls = itertools.count()

    async def GetPluginInfo(
        self, request: plugin_pb2.GetPluginInfoRequest, context: Context
    ) -> plugin_pb2.GetPluginInfoResponse:
        if next(self._calls):
            await asyncio.Event().wait()
        return await super().GetPluginInfo(request, context)


class RefusesUnknownFields(PlainPlugin):
    async def check(self, request: Request, context: Context) -> None:
        if len(UnknownFieldSet(request)):  # type: ignore[arg-type]  # any message
            await self.refuse(context, "unknown field")
        await super().check(request, context)


class RefusesNewerHosts(PlainPlugin):
    async def GetPluginInfo(
        self, request: plugin_pb2.GetPluginInfoRequest, context: Context
    ) -> plugin_pb2.GetPluginInfoResponse:
        if any(".v9." in contract for contract in request.contracts):
            await self.refuse(context, "unknown contract")
        return await super().GetPluginInfo(request, context)


class CodeOnly(PlainPlugin):
    async def refuse(self, context: Context, message: str) -> NoReturn:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        raise AssertionError


class AcceptsEveryReport(PlainPlugin):
    async def ReportAttachment(
        self, request: plugin_pb2.ReportAttachmentRequest, context: Context
    ) -> plugin_pb2.ReportAttachmentResponse:
        return plugin_pb2.ReportAttachmentResponse(request_id=request.context.request_id)


class ReportsOnlyOnce(PlainPlugin):
    def __init__(self) -> None:
        self._reports = itertools.count()

    async def ReportAttachment(
        self, request: plugin_pb2.ReportAttachmentRequest, context: Context
    ) -> plugin_pb2.ReportAttachmentResponse:
        if next(self._reports):
            await self.refuse(context, "said before")
        return await super().ReportAttachment(request, context)


class CannotTakeNo(PlainPlugin):
    async def ReportAttachment(
        self, request: plugin_pb2.ReportAttachmentRequest, context: Context
    ) -> plugin_pb2.ReportAttachmentResponse:
        if request.outcome == plugin_pb2.ATTACHMENT_OUTCOME_REFUSED:
            raise RuntimeError("refused?")
        return await super().ReportAttachment(request, context)


class NamesTheOutcome(PlainPlugin):
    async def ReportAttachment(
        self, request: plugin_pb2.ReportAttachmentRequest, context: Context
    ) -> plugin_pb2.ReportAttachmentResponse:
        plugin_pb2.AttachmentOutcome.Name(request.outcome)  # raises for numbers of the future
        return await super().ReportAttachment(request, context)


class TakesCallsForNobody(PlainPlugin):
    async def PreprocessMessage(
        self, request: preprocessor_pb.PreprocessMessageRequest, context: Context
    ) -> preprocessor_pb.PreprocessMessageResponse:
        response = preprocessor_pb.PreprocessMessageResponse()
        response.accepted.SetInParent()
        return response


def _accepts_long(_plugin: PlainPlugin, request_id: str) -> str:
    return "" if request_id else "context.request_id: required"


BROKEN: dict[str, Broken] = {
    "attach.name_is_valid": says(lambda info: setattr(info, "name", "Com.Example Store")),
    "attach.version_is_valid": says(lambda info: info.ClearField("version")),
    "attach.instance_id_is_valid": says(lambda info: info.ClearField("instance_id")),
    "attach.contracts_are_listed": says(lambda info: info.ClearField("contracts")),
    "attach.asked_contracts_are_declared": Broken(
        PlainPlugin, asked=frozenset({DISPLAY_MESSAGE_PERSISTENCE})
    ),
    "attach.capabilities_fit_the_contract": says(_wrong_arm),
    "attach.plugin_capabilities_are_marked": says(lambda info: info.capabilities.pop(0)),
    "attach.agent_persistence_capabilities_are_marked": says(_unmarked_agent),
    "attach.display_message_persistence_capabilities_are_marked": says(_unmarked_display),
    "attach.message_preprocessor_capabilities_are_marked": says(_unmarked_preprocessor),
    "attach.capabilities_are_specified": says(
        lambda info: info.capabilities.append(plugin_pb2.PLUGIN_CAPABILITY_UNSPECIFIED)
    ),
    "attach.limits_are_positive": says(lambda info: setattr(info.limits, "max_request_bytes", 0)),
    "attach.state_view_is_single": says(_two_views),
    "attach.last_messages_are_in_range": says(_no_last_messages),
    "attach.health_is_serving": overrides(health=lambda _self, _service: NOT_SERVING),
    "attach.health_names_each_contract": overrides(
        health=lambda _self, service: None if service == AGENT_PERSISTENCE else SERVING
    ),
    "attach.health_of_unknown_name_is_not_found": overrides(health=lambda _self, _service: SERVING),
    "attach.request_id_is_repeated": Broken(AnswersForAnother),
    "attach.info_stays_the_same": Broken(ChangesItsMind),
    "attach.instance_id_stays_while_it_runs": Broken(NewInstanceEachTime),
    "attach.concurrent_calls_are_not_mixed_up": Broken(MixesUp),
    "attach.info_is_in_time": Broken(HangsLater, patience=0.1),
    "attach.request_id_is_required": overrides(request_id_problem=lambda _self, _request_id: ""),
    "attach.malformed_request_id_is_refused": overrides(request_id_problem=_accepts_long),
    "attach.bad_request_names_the_field": overrides(violations=lambda _self: []),
    "attach.error_domain_is_the_name": overrides(error_domain="sagentry"),
    "attach.error_text_is_short": overrides(
        request_id_problem=lambda _self, request_id: (
            request_id[:2000] if len(request_id) > 256 else ""
        )
    ),
    "attach.unknown_fields_are_tolerated": Broken(RefusesUnknownFields),
    "attach.unknown_host_contracts_are_tolerated": Broken(RefusesNewerHosts),
    "attach.declared_methods_are_implemented": says(_lies_about_append),
    "attach.missing_context_is_refused": Broken(TakesCallsForNobody),
    "attach.report_is_taken": Broken(ReportsOnlyOnce),
    "attach.refusal_is_taken": Broken(CannotTakeNo),
    "attach.unknown_outcome_of_attachment_is_tolerated": Broken(NamesTheOutcome),
    "attach.report_needs_a_request_id": Broken(AcceptsEveryReport),
    "attach.reflection_lists_the_contracts": overrides(reflected=(MESSAGE_PREPROCESSOR,)),
}
"""Id of the case → a plugin that fails it."""
