"""The contracts that this host knows: names, services, capabilities, RPCs."""

from __future__ import annotations

from google.protobuf.descriptor import EnumDescriptor

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

_ENUMS: dict[str, tuple[str, EnumDescriptor, str]] = {
    SERVICES["agent_persistence"]: (
        "AGENT_PERSISTENCE_CAPABILITY_",
        agent_persistence_pb2.AgentPersistenceCapability.DESCRIPTOR,
        "agent_persistence",
    ),
    SERVICES["display_message_persistence"]: (
        "DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_",
        display_message_persistence_pb2.DisplayMessagePersistenceCapability.DESCRIPTOR,
        "display_message_persistence",
    ),
    SERVICES["message_preprocessor"]: (
        "MESSAGE_PREPROCESSOR_CAPABILITY_",
        message_preprocessor_pb2.MessagePreprocessorCapability.DESCRIPTOR,
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
    prefix, descriptor, _ = _ENUMS[contract.service]
    known = descriptor.values_by_number
    numbers = capability_numbers(contract)
    names = [known[number].name.removeprefix(prefix) for number in numbers if number in known]
    return tuple(name for name in names if name != MARKER)


def fits(contract: plugin_pb2.Contract) -> bool:
    """Says whether the capabilities' arm is that of the contract's service."""
    arm = contract.WhichOneof("capabilities")
    return arm is None or arm == _ENUMS[contract.service][2]


def family(service: str) -> str:
    """Returns the service name without the version: what stays when a contract gets a new one."""
    return ".".join(
        part for part in service.split(".") if not (part[:1] == "v" and part[1:2].isdigit())
    )
