"""Attaching: from an address to a plugin that can be used, or to one clear line of why not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import grpc.aio
from grpc_health.v1 import health_pb2

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.server.domain.ids import is_valid_id, new_id
from sagentry.server.domain.plugins import ContractBinding, PluginIdentity
from sagentry.server.errors import PluginError
from sagentry.server.plugin.budgets import ATTACH_BUDGET
from sagentry.server.plugin.calls import Caller, Method
from sagentry.server.plugin.channel import MAX_MESSAGE_BYTES, Connection
from sagentry.server.plugin.contracts import (
    PLUGIN_SERVICE,
    SERVICES,
    capability_names,
    capability_numbers,
    family,
    fits,
)

HEALTH_SERVICE = "grpc.health.v1.Health"

DEFAULT_LIMIT = 4 * 1024 * 1024 - 64 * 1024
"""What a plugin takes that declares no limits."""

_NAME = re.compile(r"[a-z0-9.-]{1,63}")
_LONGEST_VERSION = 256


class AttachError(Exception):
    """A plugin cannot be attached.

    Attributes:
        reason: An `ErrorReason` without prefix.
        problem: Why, in one line for people.
        is_refusal: Whether it answers and cannot be used; otherwise it may come by itself.
        contract: The contract that it is about, or empty.
    """

    def __init__(
        self, reason: str, problem: str, *, is_refusal: bool = False, contract: str = ""
    ) -> None:
        """Keeps the line."""
        super().__init__(problem)
        self.reason = reason
        self.problem = problem
        self.is_refusal = is_refusal
        self.contract = contract


@dataclass(frozen=True, slots=True)
class Attached:
    """What a plugin has said of itself, found good.

    Attributes:
        identity: Who it is, limits lowered to the host's own.
        contracts: What it declared, by service.
        bindings: What the configuration asks of it, for operators.
        reports: Whether it wants to be told of the attachment.
    """

    identity: PluginIdentity
    contracts: dict[str, plugin_pb2.Contract]
    bindings: tuple[ContractBinding, ...]
    reports: bool


class Attachment:
    """Attaches one plugin.

    Args:
        caller: Makes its calls.
        wanted: Names of the contracts that the configuration asks of it.
        host_version: Version of this server.
    """

    def __init__(self, caller: Caller, wanted: Sequence[str], host_version: str) -> None:
        """Keeps what is wanted."""
        self._caller = caller
        self._services = [SERVICES[name] for name in wanted]
        self._host_version = host_version

    async def attach(self, connection: Connection) -> Attached:
        """Connects, asks and judges.

        Raises:
            AttachError: The plugin cannot be used, or not now.
        """
        await _connect(connection)
        try:
            response = await self._info(connection)
        except PluginError as error:
            raise _attach_error(error) from error
        try:
            attached = self._judge(response)
            await self._check_health(connection)
        except AttachError as error:
            if plugin_pb2.PLUGIN_CAPABILITY_REPORT_ATTACHMENT in response.capabilities:
                await self._report(connection, error)
            raise
        if attached.reports:
            await self._report(connection, None)
        return attached

    async def is_serving(self, connection: Connection) -> bool:
        """Asks for the plugin's health; a plugin that does not answer is not serving."""
        try:
            return await self._health(connection, "") == health_pb2.HealthCheckResponse.SERVING
        except PluginError:
            return False

    async def _info(self, connection: Connection) -> plugin_pb2.GetPluginInfoResponse:
        request = plugin_pb2.GetPluginInfoRequest(
            host_name="sagentry", host_version=self._host_version, contracts=SERVICES.values()
        )
        request.context.request_id = new_id("attach")
        return await self._caller.call(
            connection,
            Method(PLUGIN_SERVICE, "GetPluginInfo"),
            request,
            plugin_pb2.GetPluginInfoResponse,
            lambda response: response,
        )

    def _judge(self, info: plugin_pb2.GetPluginInfoResponse) -> Attached:
        problem = _identity_problem(info)
        if problem is not None:
            raise AttachError("PLUGIN_FAULT", f"breaks its contract: {problem}", is_refusal=True)
        known = {c.service: c for c in info.contracts if c.service in SERVICES.values()}
        for contract in known.values():
            _judge_contract(contract)
        for service in self._services:
            if service not in known:
                raise _incompatible(service, [c.service for c in info.contracts])
        limits = info.limits
        return Attached(
            identity=PluginIdentity(
                name=info.name,
                version=info.version,
                instance_id=info.instance_id,
                max_request_bytes=_limit(limits.max_request_bytes),
                max_response_bytes=_limit(limits.max_response_bytes),
                max_concurrent_calls=limits.max_concurrent_calls,
            ),
            contracts=known,
            bindings=tuple(
                ContractBinding(service, bound=True, capabilities=capability_names(known[service]))
                for service in self._services
            ),
            reports=plugin_pb2.PLUGIN_CAPABILITY_REPORT_ATTACHMENT in info.capabilities,
        )

    async def _check_health(self, connection: Connection) -> None:
        for service in ("", *self._services):
            try:
                status = await self._health(connection, service)
            except PluginError as error:
                raise _health_error(service, error) from error
            if status != health_pb2.HealthCheckResponse.SERVING:
                name = service or "the plugin"
                raise AttachError("PLUGIN_UNAVAILABLE", f"{name} says that it is not serving yet")

    async def _health(self, connection: Connection, service: str) -> int:
        response = await self._caller.call(
            connection,
            Method(HEALTH_SERVICE, "Check"),
            health_pb2.HealthCheckRequest(service=service),
            health_pb2.HealthCheckResponse,
            lambda response: response,
        )
        return int(response.status)

    async def _report(self, connection: Connection, error: AttachError | None) -> None:
        request = plugin_pb2.ReportAttachmentRequest(contracts=self._services)
        request.context.request_id = new_id("attach")
        request.outcome = plugin_pb2.ATTACHMENT_OUTCOME_ACCEPTED
        if error is not None:
            request.outcome = plugin_pb2.ATTACHMENT_OUTCOME_REFUSED
            request.problems.add(
                reason=error.reason, message=error.problem, contract=error.contract
            )
            del request.contracts[:]
        try:
            await self._caller.call(
                connection,
                Method(PLUGIN_SERVICE, "ReportAttachment"),
                request,
                plugin_pb2.ReportAttachmentResponse,
                lambda response: response,
            )
        except PluginError:
            # The attachment stands as it is; the failure is in the list of failures.
            return


async def _connect(connection: Connection) -> None:
    try:
        async with asyncio.timeout(ATTACH_BUDGET / timedelta(seconds=1)):
            await _ready(connection.channel)
    except TimeoutError:
        raise AttachError(
            "PLUGIN_UNAVAILABLE",
            f"nothing answers at {connection.address}, or what answers is not a gRPC server",
        ) from None


async def _ready(channel: grpc.aio.Channel) -> None:
    """Returns when the channel is connected, trying again at once after a failure."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def _attach_error(error: PluginError) -> AttachError:
    if error.plugin_code == grpc.StatusCode.UNIMPLEMENTED.value[0]:
        return AttachError(
            "PLUGIN_INCOMPATIBLE",
            "a gRPC server answers, but it is not a Sagentry plugin: it does not serve "
            f"{PLUGIN_SERVICE}",
            is_refusal=True,
            contract=PLUGIN_SERVICE,
        )
    if error.reason == "PLUGIN_FAULT":
        return AttachError(error.reason, error.message, is_refusal=True)
    return AttachError(error.reason, error.message)


def _health_error(service: str, error: PluginError) -> AttachError:
    code = error.plugin_code
    if code == grpc.StatusCode.UNIMPLEMENTED.value[0]:
        return AttachError(
            "PLUGIN_FAULT",
            f"has no health service: it must serve {HEALTH_SERVICE}",
            is_refusal=True,
            contract=HEALTH_SERVICE,
        )
    if code == grpc.StatusCode.NOT_FOUND.value[0]:
        return AttachError(
            "PLUGIN_FAULT",
            f"its health service does not know {service or 'the empty name'}",
            is_refusal=True,
            contract=HEALTH_SERVICE,
        )
    return AttachError(error.reason, error.message)


def _identity_problem(info: plugin_pb2.GetPluginInfoResponse) -> str | None:
    """Returns the first rule of GetPluginInfoResponse that the answer breaks; None for none."""
    services = [contract.service for contract in info.contracts]
    rules = (
        (_NAME.fullmatch(info.name) is not None, "name must be 1 to 63 characters of [a-z0-9.-]"),
        (0 < len(info.version) <= _LONGEST_VERSION, "version must be 1 to 256 characters"),
        (is_valid_id(info.instance_id), "instance_id must match [!-~]{1,256}"),
        (bool(services), "contracts is empty"),
        (len(set(services)) == len(services), "contracts names a service twice"),
        (
            plugin_pb2.PLUGIN_CAPABILITY_UNSPECIFIED not in info.capabilities,
            "capabilities holds the unspecified value",
        ),
    )
    return next((f"GetPluginInfo: {problem}" for holds, problem in rules if not holds), None)


def _judge_contract(contract: plugin_pb2.Contract) -> None:
    if not fits(contract):
        raise AttachError(
            "PLUGIN_FAULT",
            f"breaks its contract: the capabilities of {contract.service} are those of another",
            is_refusal=True,
            contract=contract.service,
        )
    if 0 in capability_numbers(contract):
        raise AttachError(
            "PLUGIN_FAULT",
            f"breaks its contract: the capabilities of {contract.service} hold the unspecified value",
            is_refusal=True,
            contract=contract.service,
        )


def _incompatible(service: str, offered: Sequence[str]) -> AttachError:
    others = [name for name in offered if family(name) == family(service)]
    if others:
        advice = "upgrade the server" if max(others) > service else "upgrade the plugin"
        problem = f"has {', '.join(sorted(others))}, and this server needs {service}: {advice}"
    else:
        problem = (
            f"does not serve {service}, which the configuration asks of it; it serves "
            f"{', '.join(sorted(offered)) or 'nothing'}"
        )
    return AttachError("PLUGIN_INCOMPATIBLE", problem, is_refusal=True, contract=service)


def _limit(declared: int) -> int:
    return min(declared, MAX_MESSAGE_BYTES) if declared > 0 else DEFAULT_LIMIT
