"""What a plugin says of itself, built from its code and checked before anything is served."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.sdk.contracts import Capabilities, Contract, contracts_of

MAX_BYTES = 32 * 1024 * 1024
"""Cap of requests and responses, both ways."""

_NAME = re.compile(r"[a-z0-9.-]{1,63}")
_MAX_VERSION_CHARACTERS = 256
_ADVERTISED = 1  # the marker of every enum of capabilities


class DeclarationError(ValueError):
    """What is to be served contradicts the contract; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a plugin is.

    Attributes:
        name: Reverse-domain name, for example `com.example.store`.
        served: Each contract with the object that implements it.
        info: The answer of GetPluginInfo, without request_id.
    """

    name: str
    served: tuple[tuple[Contract, object], ...]
    info: plugin_pb2.GetPluginInfoResponse


def declare(
    servicers: Sequence[object],
    *,
    name: str,
    version: str,
    capabilities: Sequence[Capabilities] = (),
    limits: plugin_pb2.PluginLimits | None = None,
) -> Declaration:
    """Says what the servicers are.

    Args:
        servicers: One or more objects; together they implement each contract at most once.
        name: 1 to 63 characters of `[a-z0-9.-]`.
        version: For people. 1 to 256 characters.
        capabilities: What no method shows, such as FENCING or a state view.
        limits: What the plugin can take. Unset sizes mean 32 MiB, which is what the SDK takes.

    Raises:
        DeclarationError: if something contradicts the contract.
    """
    if not _NAME.fullmatch(name):
        raise DeclarationError(f"name {name!r} must match {_NAME.pattern}")
    if not 1 <= len(version) <= _MAX_VERSION_CHARACTERS:
        raise DeclarationError(f"version must have 1 to {_MAX_VERSION_CHARACTERS} characters")
    served = _served(servicers)
    extra = {type(item): item for item in capabilities}
    if len(extra) < len(capabilities):
        raise DeclarationError("capabilities of one contract are given twice")
    if idle := set(extra) - {contract.capabilities for contract, _ in served}:
        names = ", ".join(sorted(kind.__name__ for kind in idle))
        raise DeclarationError(f"{names} given, but no servicer implements that contract")
    info = plugin_pb2.GetPluginInfoResponse(
        name=name,
        version=version,
        instance_id=uuid.uuid4().hex,
        contracts=[
            _declared(contract, servicer, extra.get(contract.capabilities))
            for contract, servicer in served
        ],
        capabilities=[
            plugin_pb2.PLUGIN_CAPABILITY_ADVERTISED,
            plugin_pb2.PLUGIN_CAPABILITY_REPORT_ATTACHMENT,
        ],
        limits=_limits(limits),
    )
    return Declaration(name=name, served=served, info=info)


def _served(servicers: Sequence[object]) -> tuple[tuple[Contract, object], ...]:
    if not servicers:
        raise DeclarationError("nothing to serve: pass one or more servicers")
    served: dict[str, tuple[Contract, object]] = {}
    for servicer in servicers:
        if isinstance(servicer, type):
            raise DeclarationError(f"pass an instance of {servicer.__name__}, not the class")
        contracts = contracts_of(servicer)
        if not contracts:
            raise DeclarationError(f"{_kind(servicer)} implements no contract of a plugin")
        for contract in contracts:
            service = contract.service.full_name
            if service in served:
                raise DeclarationError(f"{service} is implemented twice")
            if missing := sorted(contract.required - contract.implemented_by(servicer)):
                raise DeclarationError(
                    f"{_kind(servicer)} lacks {', '.join(missing)}, required by {service}"
                )
            served[service] = (contract, servicer)
    return tuple(served.values())


def _declared(
    contract: Contract, servicer: object, extra: Capabilities | None
) -> plugin_pb2.Contract:
    implemented = contract.implemented_by(servicer)
    shown = {number for method, number in contract.shown_by.items() if method in implemented}
    given: set[int] = set(extra.capabilities) if extra is not None else set()
    for method, number in contract.shown_by.items():
        if number in given - shown:
            label = contract.enum.values_by_number[number].name
            raise DeclarationError(f"{label} is declared, but {_kind(servicer)} lacks {method}")
    if unknown := {number for number in given if not contract.enum.values_by_number.get(number)}:
        raise DeclarationError(f"{contract.enum.name} has no value {sorted(unknown)}")
    declared = contract.capabilities()
    if extra is not None:
        declared.MergeFrom(extra)  # type: ignore[arg-type]  # both are of contract.capabilities
    declared.ClearField("capabilities")
    numbers = {_ADVERTISED, *shown, *given} - {0}
    declared.capabilities.extend(sorted(numbers))  # type: ignore[arg-type]  # of contract.enum
    result = plugin_pb2.Contract(service=contract.service.full_name)
    getattr(result, contract.arm).CopyFrom(declared)
    return result


def _limits(limits: plugin_pb2.PluginLimits | None) -> plugin_pb2.PluginLimits:
    declared = plugin_pb2.PluginLimits(max_request_bytes=MAX_BYTES, max_response_bytes=MAX_BYTES)
    if limits is not None:
        declared.MergeFrom(limits)
    for field in ("max_request_bytes", "max_response_bytes"):
        if not 1 <= getattr(declared, field) <= MAX_BYTES:
            raise DeclarationError(f"limits.{field} must be from 1 to {MAX_BYTES}")
    if declared.HasField("max_concurrent_calls") and declared.max_concurrent_calls < 1:
        raise DeclarationError("limits.max_concurrent_calls must be at least 1")
    return declared


def _kind(servicer: object) -> str:
    return type(servicer).__name__
