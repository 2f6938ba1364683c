"""What a plugin declares, by names."""

from __future__ import annotations

from google.protobuf.descriptor import EnumDescriptor

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.check.methods import (
    AGENT_PERSISTENCE,
    DISPLAY_MESSAGE_PERSISTENCE,
    MESSAGE_PREPROCESSOR,
)

ARMS = {
    AGENT_PERSISTENCE: "agent_persistence",
    DISPLAY_MESSAGE_PERSISTENCE: "display_message_persistence",
    MESSAGE_PREPROCESSOR: "message_preprocessor",
}
"""Contract → the arm of `Contract.capabilities` that fits it."""

ENUMS: dict[str, EnumDescriptor] = {
    "agent_persistence": agent_pb.DESCRIPTOR.enum_types_by_name["AgentPersistenceCapability"],
    "display_message_persistence": display_pb.DESCRIPTOR.enum_types_by_name[
        "DisplayMessagePersistenceCapability"
    ],
    "message_preprocessor": preprocessor_pb.DESCRIPTOR.enum_types_by_name[
        "MessagePreprocessorCapability"
    ],
}
"""Arm → the type of its capabilities. Value 1 is always the marker ADVERTISED."""

PLUGIN_ENUM = plugin_pb2.DESCRIPTOR.enum_types_by_name["PluginCapability"]


def declared_services(info: plugin_pb2.GetPluginInfoResponse) -> tuple[str, ...]:
    """Returns the full names of the contracts that the plugin lists."""
    return tuple(contract.service for contract in info.contracts)


def numbers_of(contract: plugin_pb2.Contract) -> list[int]:
    """Returns the capabilities of one contract as they came, or nothing."""
    arm = contract.WhichOneof("capabilities")
    return list(getattr(contract, arm).capabilities) if arm else []


def declared_capabilities(info: plugin_pb2.GetPluginInfoResponse) -> frozenset[str]:
    """Returns the names of all capabilities that this version of the contract knows."""
    names = {_name(PLUGIN_ENUM, number) for number in info.capabilities}
    for contract in info.contracts:
        arm = contract.WhichOneof("capabilities")
        if arm:
            names |= {_name(ENUMS[arm], number) for number in numbers_of(contract)}
    return frozenset(names - {""})


def _name(kind: EnumDescriptor, number: int) -> str:
    value = kind.values_by_number.get(number)
    return value.name if value is not None else ""
