"""The methods that the judge calls, with their types and the deadlines that the contract gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import plugin_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

PLUGIN = "sagentry.api.plugin.v1.PluginService"
AGENT_PERSISTENCE = "sagentry.api.plugin.v1.AgentPersistenceService"
DISPLAY_MESSAGE_PERSISTENCE = "sagentry.api.plugin.v1.DisplayMessagePersistenceService"
MESSAGE_PREPROCESSOR = "sagentry.api.plugin.v1.MessagePreprocessorService"


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One unary method.

    Attributes:
        service: Full name of the service.
        name: Name of the method.
        request: Type of the request.
        response: Type of the response.
        seconds: Deadline that the host sets.
        capability: Capability that it needs, with its prefix; empty if it is required.
    """

    service: str
    name: str
    request: type[Q]
    response: type[R]
    seconds: float
    capability: str = ""

    @property
    def path(self) -> str:
        """The path of the method in HTTP/2."""
        return f"/{self.service}/{self.name}"


GET_PLUGIN_INFO = Method(
    PLUGIN,
    "GetPluginInfo",
    plugin_pb2.GetPluginInfoRequest,
    plugin_pb2.GetPluginInfoResponse,
    seconds=2,
)
REPORT_ATTACHMENT = Method(
    PLUGIN,
    "ReportAttachment",
    plugin_pb2.ReportAttachmentRequest,
    plugin_pb2.ReportAttachmentResponse,
    seconds=2,
    capability="PLUGIN_CAPABILITY_REPORT_ATTACHMENT",
)
CHECK_HEALTH = Method(
    "grpc.health.v1.Health",
    "Check",
    health_pb2.HealthCheckRequest,
    health_pb2.HealthCheckResponse,
    seconds=2,
)
PERSIST_STATE = Method(
    AGENT_PERSISTENCE,
    "PersistState",
    agent_pb.PersistStateRequest,
    agent_pb.PersistStateResponse,
    seconds=10,
)
LOAD_STATE = Method(
    AGENT_PERSISTENCE,
    "LoadState",
    agent_pb.LoadStateRequest,
    agent_pb.LoadStateResponse,
    seconds=5,
)
APPEND_STATE = Method(
    AGENT_PERSISTENCE,
    "AppendState",
    agent_pb.AppendStateRequest,
    agent_pb.AppendStateResponse,
    seconds=10,
    capability="AGENT_PERSISTENCE_CAPABILITY_APPEND_STATE",
)
SET_INTERRUPTED = Method(
    AGENT_PERSISTENCE,
    "SetInterrupted",
    agent_pb.SetInterruptedRequest,
    agent_pb.SetInterruptedResponse,
    seconds=10,
    capability="AGENT_PERSISTENCE_CAPABILITY_SET_INTERRUPTED",
)
DELETE_STATE = Method(
    AGENT_PERSISTENCE,
    "DeleteState",
    agent_pb.DeleteStateRequest,
    agent_pb.DeleteStateResponse,
    seconds=10,
    capability="AGENT_PERSISTENCE_CAPABILITY_DELETE_STATE",
)
OPEN_CONVERSATION = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "OpenConversation",
    display_pb.OpenConversationRequest,
    display_pb.OpenConversationResponse,
    seconds=3,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_FENCING",
)
SAVE_MESSAGE = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "SaveMessage",
    display_pb.SaveMessageRequest,
    display_pb.SaveMessageResponse,
    seconds=3,
)
UPDATE_TOOL_STATUS = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "UpdateToolStatus",
    display_pb.UpdateToolStatusRequest,
    display_pb.UpdateToolStatusResponse,
    seconds=3,
)
RESOLVE_TOOL_RESULT = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "ResolveToolResult",
    display_pb.ResolveToolResultRequest,
    display_pb.ResolveToolResultResponse,
    seconds=3,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_RESOLVE_TOOL_RESULT",
)
SAVE_SYNTHETIC_MESSAGE = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "SaveSyntheticMessage",
    display_pb.SaveSyntheticMessageRequest,
    display_pb.SaveSyntheticMessageResponse,
    seconds=3,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_SAVE_SYNTHETIC_MESSAGE",
)
LIST_DISPLAY_MESSAGES = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "ListDisplayMessages",
    display_pb.ListDisplayMessagesRequest,
    display_pb.ListDisplayMessagesResponse,
    seconds=3,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_LIST_DISPLAY_MESSAGES",
)
APPLY_WRITES = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "ApplyWrites",
    display_pb.ApplyWritesRequest,
    display_pb.ApplyWritesResponse,
    seconds=3,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_APPLY_WRITES",
)
DELETE_CONVERSATION = Method(
    DISPLAY_MESSAGE_PERSISTENCE,
    "DeleteConversation",
    display_pb.DeleteConversationRequest,
    display_pb.DeleteConversationResponse,
    seconds=10,
    capability="DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_DELETE_CONVERSATION",
)
PREPROCESS_MESSAGE = Method(
    MESSAGE_PREPROCESSOR,
    "PreprocessMessage",
    preprocessor_pb.PreprocessMessageRequest,
    preprocessor_pb.PreprocessMessageResponse,
    seconds=5,
)

# Every method but those of PluginService. Any: the types differ from one to the next.
CONTRACT_METHODS: tuple[Method[Any, Any], ...] = (
    PERSIST_STATE,
    LOAD_STATE,
    APPEND_STATE,
    SET_INTERRUPTED,
    DELETE_STATE,
    OPEN_CONVERSATION,
    SAVE_MESSAGE,
    UPDATE_TOOL_STATUS,
    RESOLVE_TOOL_RESULT,
    SAVE_SYNTHETIC_MESSAGE,
    LIST_DISPLAY_MESSAGES,
    APPLY_WRITES,
    DELETE_CONVERSATION,
    PREPROCESS_MESSAGE,
)
