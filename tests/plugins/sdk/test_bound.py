"""Synchronous servicers under grpcio-testing: what the served plugin would answer."""

from __future__ import annotations

import grpc
import grpc_testing  # noqa: TID251  only synchronous servicers here
import pytest
from google.rpc import error_details_pb2, status_pb2

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.plugins.sdk import AgentPersistence, Call, MixedKindsError, bound
from tests.support.sdk_plugins import TEXT, Looped, Threaded, request

SERVICE = pb.DESCRIPTOR.services_by_name["MessagePreprocessorService"]
METHOD = SERVICE.methods_by_name["PreprocessMessage"]


class Answered:
    """Response, code and details of one call."""

    def __init__(
        self, plugin: object, sent: pb.PreprocessMessageRequest, seconds: float = 5.0
    ) -> None:
        clock = grpc_testing.strict_fake_time(100.0)
        server = grpc_testing.server_from_dictionary({SERVICE: bound(plugin)}, clock)
        call = server.invoke_unary_unary(METHOD, (), sent, seconds)
        self.response, trailing, self.code, self.message = call.termination()
        status = status_pb2.Status()
        for key, value in trailing or ():
            if key == "grpc-status-details-bin":
                status.ParseFromString(value)
        self.info = error_details_pb2.ErrorInfo()
        self.fields: list[str] = []
        self.retry = error_details_pb2.RetryInfo()
        for detail in status.details:
            detail.Unpack(self.info)
            detail.Unpack(self.retry)
            bad = error_details_pb2.BadRequest()
            if detail.Unpack(bad):
                self.fields = [violation.field for violation in bad.field_violations]


def test_the_answer_repeats_the_request_id_whatever_the_method_set() -> None:
    answered = Answered(Threaded(), request("hello", request_id="r-7"))

    assert answered.code is grpc.StatusCode.OK
    assert answered.response.request_id == "r-7"


def test_the_call_says_who_it_is_for_and_how_long_is_left() -> None:
    plugin = Threaded()
    sent = request("hello", tenant="acme")
    sent.context.scope.scoped.partition = "ada"
    sent.context.owner_epoch = 4
    sent.context.budget.FromSeconds(3)

    Answered(plugin, sent, seconds=60.0)

    (call,) = plugin.calls
    assert call.key == ("acme", "ada", "c-1")
    assert call.is_scoped
    assert call.owner_epoch == 4
    remaining = call.remaining()
    assert remaining is not None
    assert 2 < remaining.total_seconds() <= 3


def test_what_is_no_tenants_has_a_key_that_no_tenant_has() -> None:
    plugin = Threaded()
    sent = request("hello")
    sent.context.scope.unscoped.SetInParent()

    Answered(plugin, sent)

    assert plugin.calls[0].key == ("", "", "c-1")
    assert not plugin.calls[0].is_scoped


@pytest.mark.parametrize(
    ("field", "value", "reason", "path"),
    [
        ("request_id", "", "FIELD_INVALID", "context.request_id"),
        ("request_id", "two words", "FIELD_INVALID", "context.request_id"),
        ("conversation_id", "", "FIELD_INVALID", "context.conversation_id"),
        ("conversation_id", "c" * 257, "FIELD_INVALID", "context.conversation_id"),
        ("agent_id", "ä", "FIELD_INVALID", "context.agent_id"),
        ("owner_epoch", -1, "FIELD_INVALID", "context.owner_epoch"),
        ("scope", None, "SCOPE_REQUIRED", "context.scope"),
        ("scope.tenant", "", "FIELD_INVALID", "context.scope.scoped.tenant"),
        ("scope.partition", "a b", "FIELD_INVALID", "context.scope.scoped.partition"),
        ("scope.payload", b"x" * 4097, "FIELD_INVALID", "context.scope.scoped.payload"),
    ],
)
def test_a_context_that_is_not_allowed_is_refused_before_the_method(
    field: str, value: object, reason: str, path: str
) -> None:
    plugin = Threaded()
    sent = request("hello")
    target = sent.context.scope.scoped if "." in field else sent.context
    if value is None:
        sent.context.ClearField("scope")
    else:
        setattr(target, field.rpartition(".")[2], value)

    answered = Answered(plugin, sent)

    assert answered.code is grpc.StatusCode.INVALID_ARGUMENT
    assert answered.info.reason == reason
    assert answered.fields == [path]
    assert plugin.calls == []


def test_a_refusal_carries_its_reason_and_when_to_come_back() -> None:
    answered = Answered(Threaded(), request("overloaded"))

    assert answered.code is grpc.StatusCode.UNAVAILABLE
    assert answered.info.reason == "OVERLOADED"
    assert answered.info.domain == "plugin.test"
    assert answered.retry.retry_delay.seconds == 2


@pytest.mark.parametrize("text", ["raise", "nothing", "no outcome"])
def test_a_fault_is_answered_with_an_error_id_and_never_its_text(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    answered = Answered(Threaded(), request(text))

    assert answered.code is grpc.StatusCode.INTERNAL
    assert answered.info.reason == "INTERNAL"
    assert TEXT not in answered.message
    assert answered.info.metadata["error_id"] in answered.message
    assert answered.info.metadata["error_id"] in caplog.text


class Store(AgentPersistence):
    """Has the required methods only."""

    def PersistState(  # noqa: N802  the contract's name
        self, request: agent_pb.PersistStateRequest, _call: Call
    ) -> agent_pb.PersistStateResponse:
        response = agent_pb.PersistStateResponse()
        response.saved.revision = request.revision
        return response

    def LoadState(  # noqa: N802  the contract's name
        self, _request: agent_pb.LoadStateRequest, _call: Call
    ) -> agent_pb.LoadStateResponse:
        return agent_pb.LoadStateResponse()


def test_a_method_that_is_not_overridden_is_unimplemented() -> None:
    service = agent_pb.DESCRIPTOR.services_by_name["AgentPersistenceService"]
    clock = grpc_testing.strict_fake_time(0.0)
    server = grpc_testing.server_from_dictionary({service: bound(Store())}, clock)

    call = server.invoke_unary_unary(
        service.methods_by_name["DeleteState"], (), agent_pb.DeleteStateRequest(), 1.0
    )

    assert call.termination()[2] is grpc.StatusCode.UNIMPLEMENTED


def test_asynchronous_plugins_are_refused_because_grpcio_testing_would_pass_them() -> None:
    with pytest.raises(MixedKindsError, match="Looped is asynchronous"):
        bound(Looped())
