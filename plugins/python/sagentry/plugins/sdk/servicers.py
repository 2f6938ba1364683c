"""Classes to implement the contracts with.

Implement the required methods and those optional ones that you have. What you override is declared
as a capability; what you leave alone is neither served nor declared, so a declaration cannot lie.
Methods are `def` (each call runs in a thread of a pool) or `async def` (calls share one event loop);
one plugin does not mix the two.

Each method gets the request and a checked `Call`. It returns its response, whose `request_id` the
SDK fills in, or raises a `PluginError`. Names are those of the contract; what each method must do,
and what makes it safe to repeat, is written there.
"""
# ruff: noqa: N802, D102  names and meaning of the methods are those of the contract

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.plugins.sdk.call import Call


class AgentPersistence(ABC):
    """Keeps agent state: `sagentry.api.plugin.v1.AgentPersistenceService`.

    Declare `AGENT_PERSISTENCE_CAPABILITY_FENCING` and `…_CHECKPOINT` yourself: no method shows them.
    """

    @abstractmethod
    def PersistState(
        self, request: agent_pb.PersistStateRequest, call: Call
    ) -> agent_pb.PersistStateResponse | Awaitable[agent_pb.PersistStateResponse]: ...

    @abstractmethod
    def LoadState(
        self, request: agent_pb.LoadStateRequest, call: Call
    ) -> agent_pb.LoadStateResponse | Awaitable[agent_pb.LoadStateResponse]: ...

    def AppendState(
        self, request: agent_pb.AppendStateRequest, call: Call
    ) -> agent_pb.AppendStateResponse | Awaitable[agent_pb.AppendStateResponse]:
        raise NotImplementedError

    def SetInterrupted(
        self, request: agent_pb.SetInterruptedRequest, call: Call
    ) -> agent_pb.SetInterruptedResponse | Awaitable[agent_pb.SetInterruptedResponse]:
        raise NotImplementedError

    def DeleteState(
        self, request: agent_pb.DeleteStateRequest, call: Call
    ) -> agent_pb.DeleteStateResponse | Awaitable[agent_pb.DeleteStateResponse]:
        raise NotImplementedError


class DisplayMessagePersistence(ABC):
    """Keeps what users see: `sagentry.api.plugin.v1.DisplayMessagePersistenceService`.

    Overriding OpenConversation declares FENCING: check the epochs of writes as well.
    """

    @abstractmethod
    def SaveMessage(
        self, request: display_pb.SaveMessageRequest, call: Call
    ) -> display_pb.SaveMessageResponse | Awaitable[display_pb.SaveMessageResponse]: ...

    @abstractmethod
    def UpdateToolStatus(
        self, request: display_pb.UpdateToolStatusRequest, call: Call
    ) -> display_pb.UpdateToolStatusResponse | Awaitable[display_pb.UpdateToolStatusResponse]: ...

    def OpenConversation(
        self, request: display_pb.OpenConversationRequest, call: Call
    ) -> display_pb.OpenConversationResponse | Awaitable[display_pb.OpenConversationResponse]:
        raise NotImplementedError

    def ResolveToolResult(
        self, request: display_pb.ResolveToolResultRequest, call: Call
    ) -> display_pb.ResolveToolResultResponse | Awaitable[display_pb.ResolveToolResultResponse]:
        raise NotImplementedError

    def SaveSyntheticMessage(
        self, request: display_pb.SaveSyntheticMessageRequest, call: Call
    ) -> (
        display_pb.SaveSyntheticMessageResponse | Awaitable[display_pb.SaveSyntheticMessageResponse]
    ):
        raise NotImplementedError

    def ListDisplayMessages(
        self, request: display_pb.ListDisplayMessagesRequest, call: Call
    ) -> display_pb.ListDisplayMessagesResponse | Awaitable[display_pb.ListDisplayMessagesResponse]:
        raise NotImplementedError

    def ApplyWrites(
        self, request: display_pb.ApplyWritesRequest, call: Call
    ) -> display_pb.ApplyWritesResponse | Awaitable[display_pb.ApplyWritesResponse]:
        raise NotImplementedError

    def DeleteConversation(
        self, request: display_pb.DeleteConversationRequest, call: Call
    ) -> display_pb.DeleteConversationResponse | Awaitable[display_pb.DeleteConversationResponse]:
        raise NotImplementedError


class MessagePreprocessor(ABC):
    """Looks at each user message: `sagentry.api.plugin.v1.MessagePreprocessorService`.

    Declare the state view that you want; none is sent otherwise.
    """

    @abstractmethod
    def PreprocessMessage(
        self, request: preprocessor_pb.PreprocessMessageRequest, call: Call
    ) -> (
        preprocessor_pb.PreprocessMessageResponse
        | Awaitable[preprocessor_pb.PreprocessMessageResponse]
    ): ...
