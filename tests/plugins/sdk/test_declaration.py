from __future__ import annotations

import re

import pytest

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as preprocessor_grpc
from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.sdk import (
    AgentPersistence,
    Call,
    Capabilities,
    DeclarationError,
    DisplayMessagePersistence,
    EndpointError,
    MixedKindsError,
    serving_in_threads,
)
from sagentry.plugins.sdk.declaration import declare
from tests.support.sdk_plugins import Looped, Threaded

FENCING = agent_pb.AgentPersistenceCapabilities(
    capabilities=[agent_pb.AGENT_PERSISTENCE_CAPABILITY_FENCING]
)


class Store(AgentPersistence, DisplayMessagePersistence):
    """Two contracts in one object, with one optional method of each."""

    def PersistState(self, *_: object) -> agent_pb.PersistStateResponse:  # noqa: N802
        return agent_pb.PersistStateResponse()

    def LoadState(self, *_: object) -> agent_pb.LoadStateResponse:  # noqa: N802
        return agent_pb.LoadStateResponse()

    def DeleteState(self, *_: object) -> agent_pb.DeleteStateResponse:  # noqa: N802
        return agent_pb.DeleteStateResponse()

    def SaveMessage(self, *_: object) -> display_pb.SaveMessageResponse:  # noqa: N802
        return display_pb.SaveMessageResponse()

    def UpdateToolStatus(self, *_: object) -> display_pb.UpdateToolStatusResponse:  # noqa: N802
        return display_pb.UpdateToolStatusResponse()

    def OpenConversation(self, *_: object) -> display_pb.OpenConversationResponse:  # noqa: N802
        return display_pb.OpenConversationResponse()


def declared(*servicers: object, **options: object) -> plugin_pb2.GetPluginInfoResponse:
    named = {"name": "com.example.store", "version": "1"} | options
    return declare(servicers, **named).info  # type: ignore[arg-type]  # wrong ones are the point


def test_what_is_implemented_is_declared_with_the_marker() -> None:
    agent, display = declared(Store()).contracts

    assert agent.service == "sagentry.api.plugin.v1.AgentPersistenceService"
    assert list(agent.agent_persistence.capabilities) == [
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_ADVERTISED,
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_DELETE_STATE,
    ]
    assert list(display.display_message_persistence.capabilities) == [
        display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_ADVERTISED,
        display_pb.DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_FENCING,
    ]


def test_what_no_method_shows_is_declared_when_given() -> None:
    agent = declared(Store(), capabilities=[FENCING]).contracts[0]

    assert agent_pb.AGENT_PERSISTENCE_CAPABILITY_FENCING in agent.agent_persistence.capabilities


def test_the_state_view_keeps_its_count() -> None:
    view = preprocessor_pb.MessagePreprocessorCapabilities(
        capabilities=[preprocessor_pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_LAST_MESSAGES],
        last_messages=5,
    )

    (contract,) = declared(Threaded(), capabilities=[view]).contracts

    assert contract.message_preprocessor.last_messages == 5


def test_each_start_has_an_instance_id_of_its_own() -> None:
    assert declared(Store()).instance_id != declared(Store()).instance_id


def test_limits_are_declared_because_the_sdk_takes_more_than_the_default() -> None:
    limits = declared(Store(), limits=plugin_pb2.PluginLimits(max_response_bytes=1024)).limits

    assert (limits.max_request_bytes, limits.max_response_bytes) == (32 * 1024 * 1024, 1024)


APPEND = agent_pb.AgentPersistenceCapabilities(
    capabilities=[agent_pb.AGENT_PERSISTENCE_CAPABILITY_APPEND_STATE]
)


class Half(preprocessor_grpc.MessagePreprocessorServiceServicer):
    """Of the generated class, without the required method."""


@pytest.mark.parametrize(
    ("servicers", "options", "problem"),
    [
        ([], {}, "nothing to serve"),
        ([object()], {}, "object implements no contract"),
        ([Store], {}, "pass an instance of Store"),
        ([Store(), Store()], {}, "implemented twice"),
        ([Half()], {}, "Half lacks PreprocessMessage"),  # type: ignore[abstract]
        ([Store()], {"name": "My Store"}, "name 'My Store' must match"),
        ([Store()], {"version": ""}, "version must have"),
        (
            [Store()],
            {"capabilities": [APPEND]},
            "APPEND_STATE is declared, but Store lacks AppendState",
        ),
        ([Threaded()], {"capabilities": [FENCING]}, "no servicer implements that contract"),
        ([Store()], {"capabilities": [FENCING, FENCING]}, "given twice"),
        ([Store()], {"limits": plugin_pb2.PluginLimits(max_request_bytes=1 << 30)}, "from 1 to"),
        ([Store()], {"limits": plugin_pb2.PluginLimits(max_concurrent_calls=0)}, "at least 1"),
    ],
)
def test_what_contradicts_the_contract_is_refused_and_the_text_says_what_to_change(
    servicers: list[object], options: dict[str, object], problem: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)):
        declared(*servicers, **options)


def test_a_mix_of_def_and_async_def_is_refused_and_both_are_named() -> None:
    with (
        pytest.raises(MixedKindsError, match=r"Store\.DeleteState.* is `def`, Looped\.Prepro"),
        serving_in_threads(Store(), Looped(), name="x", version="1", endpoint="127.0.0.1:0"),
    ):
        pass


def test_without_an_endpoint_the_text_names_the_variable() -> None:
    with (
        pytest.raises(EndpointError, match="SAGENTRY_PLUGIN_ENDPOINT"),
        serving_in_threads(Threaded(), name="x", version="1"),
    ):
        pass


def test_the_types_of_capabilities_are_those_of_the_contract() -> None:
    given: list[Capabilities] = [FENCING]

    assert declared(Store(), capabilities=given).contracts
    assert Call(request_id="r").remaining() is None
