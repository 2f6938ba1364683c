"""The contracts that this host knows: names, services, capabilities, RPCs."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from sagentry.api.plugin.v1 import (
    agent_persistence_pb2,
    display_message_persistence_pb2,
    message_preprocessor_pb2,
    plugin_pb2,
)

PLUGIN_SERVICE = "sagentry.api.plugin.v1.PluginService"

SERVICES = {
    "agent_persistence": "sagentry.api.plugin.v1.AgentPersistenceService",
    "display_message_persistence": "sagentry.api.plugin.v1.DisplayMessagePersistenceService",
    "message_preprocessor": "sagentry.api.plugin.v1.MessagePreprocessorService",
}
"""Full service name of each contract by its name in the configuration, newest version first."""

_ENUMS = {
    SERVICES["agent_persistence"]: (
        "AGENT_PERSISTENCE_CAPABILITY_",
        agent_persistence_pb2.AgentPersistenceCapability,
        "agent_persistence",
    ),
    SERVICES["display_message_persistence"]: (
        "DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_",
        display_message_persistence_pb2.DisplayMessagePersistenceCapability,
        "display_message_persistence",
    ),
    SERVICES["message_preprocessor"]: (
        "MESSAGE_PREPROCESSOR_CAPABILITY_",
        message_preprocessor_pb2.MessagePreprocessorCapability,
        "message_preprocessor",
    ),
}

MARKER = "ADVERTISED"


def capability_numbers(contract: plugin_pb2.Contract) -> list[int]:
    """Returns the capability numbers that a plugin declared of a contract that the host knows."""
    arm = contract.WhichOneof("capabilities")
    return list(getattr(contract, arm).capabilities) if arm is not None else []


def capability_names(contract: plugin_pb2.Contract) -> tuple[str, ...]:
    """Returns the names of the declared capabilities without prefix; marker and unknown ones left out."""
    prefix, enum, _ = _ENUMS[contract.service]
    return tuple(
        name for name in known_names(enum, prefix, capability_numbers(contract)) if name != MARKER
    )


def known_names(enum: EnumTypeWrapper, prefix: str, numbers: Iterable[int]) -> list[str]:
    """Returns the names of those numbers that the enum knows."""
    return [enum.Name(n).removeprefix(prefix) for n in numbers if n in enum.values()]


def fits(contract: plugin_pb2.Contract) -> bool:
    """Says whether the capabilities' arm is that of the contract's service."""
    arm = contract.WhichOneof("capabilities")
    return arm is None or arm == _ENUMS[contract.service][2]


def family(service: str) -> str:
    """Returns the service name without the version: what stays when a contract gets a new one."""
    return ".".join(part for part in service.split(".") if not (part[:1] == "v" and part[1:2].isdigit()))
