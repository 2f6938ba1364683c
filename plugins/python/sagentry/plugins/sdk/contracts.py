"""The contracts that a plugin may serve: their methods and what each capability stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.descriptor import EnumDescriptor, ServiceDescriptor

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import agent_persistence_pb2_grpc as agent_grpc
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2_grpc as display_grpc
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as preprocessor_grpc
from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.sdk.servicers import (
    AgentPersistence,
    DisplayMessagePersistence,
    MessagePreprocessor,
)

Capabilities: TypeAlias = (
    agent_pb.AgentPersistenceCapabilities
    | display_pb.DisplayMessagePersistenceCapabilities
    | preprocessor_pb.MessagePreprocessorCapabilities
)
"""What is declared of one contract, as it goes over the wire."""

PLUGIN_SERVICE = plugin_pb2.DESCRIPTOR.services_by_name["PluginService"]


@dataclass(frozen=True, slots=True)
class Contract:
    """One contract.

    Attributes:
        service: Its descriptor.
        bases: The SDK's class and the generated one; an instance of either implements it.
        required: Methods that every implementation has.
        shown_by: Optional method → the capability that it stands for.
        capabilities: The type that declares capabilities.
        enum: The type of the capabilities themselves. Its value 1 is always the marker ADVERTISED.
        arm: The arm of `Contract.capabilities` for it.
        tenantless: Methods whose own context names no tenant.
    """

    service: ServiceDescriptor
    bases: tuple[type, type]
    required: frozenset[str]
    shown_by: Mapping[str, int]
    capabilities: type[Capabilities]
    enum: EnumDescriptor
    arm: str
    tenantless: frozenset[str] = frozenset()

    def implemented_by(self, servicer: object) -> frozenset[str]:
        """Returns the names of the methods that the servicer overrides."""
        return frozenset(
            method.name
            for method in self.service.methods
            if not any(
                getattr(type(servicer), method.name, None) is getattr(base, method.name, None)
                for base in self.bases
            )
        )


CONTRACTS = (
    Contract(
        service=agent_pb.DESCRIPTOR.services_by_name["AgentPersistenceService"],
        bases=(AgentPersistence, agent_grpc.AgentPersistenceServiceServicer),
        required=frozenset({"PersistState", "LoadState"}),
        shown_by={
            "AppendState": agent_pb.AGENT_PERSISTENCE_CAPABILITY_APPEND_STATE,
            "SetInterrupted": agent_pb.AGENT_PERSISTENCE_CAPABILITY_SET_INTERRUPTED,
            "DeleteState": agent_pb.AGENT_PERSISTENCE_CAPABILITY_DELETE_STATE,
        },
        capabilities=agent_pb.AgentPersistenceCapabilities,
        enum=agent_pb.DESCRIPTOR.enum_types_by_name["AgentPersistenceCapability"],
        arm="agent_persistence",
    ),
    Contract(
        service=display_pb.DESCRIPTOR.services_by_name["DisplayMessagePersistenceService"],
        bases=(DisplayMessagePersistence, display_grpc.DisplayMessagePersistenceServiceServicer),
        required=frozenset({"SaveMessage", "UpdateToolStatus"}),
        shown_by={
            "OpenConversation": display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_FENCING,
            "ResolveToolResult": (
                display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_RESOLVE_TOOL_RESULT
            ),
            "SaveSyntheticMessage": (
                display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_SAVE_SYNTHETIC_MESSAGE
            ),
            "ListDisplayMessages": (
                display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_LIST_DISPLAY_MESSAGES
            ),
            "ApplyWrites": display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_APPLY_WRITES,
            "DeleteConversation": (
                display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_DELETE_CONVERSATION
            ),
        },
        capabilities=display_pb.DisplayMessagePersistenceCapabilities,
        enum=display_pb.DESCRIPTOR.enum_types_by_name["DisplayMessagePersistenceCapability"],
        arm="display_message_persistence",
        tenantless=frozenset({"ApplyWrites"}),
    ),
    Contract(
        service=preprocessor_pb.DESCRIPTOR.services_by_name["MessagePreprocessorService"],
        bases=(MessagePreprocessor, preprocessor_grpc.MessagePreprocessorServiceServicer),
        required=frozenset({"PreprocessMessage"}),
        shown_by={},
        capabilities=preprocessor_pb.MessagePreprocessorCapabilities,
        enum=preprocessor_pb.DESCRIPTOR.enum_types_by_name["MessagePreprocessorCapability"],
        arm="message_preprocessor",
    ),
)


def contracts_of(servicer: object) -> tuple[Contract, ...]:
    """Returns the contracts that the servicer implements; none if it is not a servicer."""
    return tuple(contract for contract in CONTRACTS if isinstance(servicer, contract.bases))
