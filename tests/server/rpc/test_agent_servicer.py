from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc.aio
import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.api.agent.v1 import agent_service_pb2_grpc as pb_grpc
from sagentry.api.type.v1 import display_pb2, document_pb2, message_pb2, scope_pb2
from sagentry.server.domain import commands
from sagentry.server.domain.commands import AgentOptions, DisplayChoice
from sagentry.server.domain.display import DisplayMessage, DisplayPage, ListOrder
from sagentry.server.domain.messages import Document, TextPart
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunPhase
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.domain.state import StartOptions
from sagentry.server.errors import InvalidStateError
from tests.support.events import TIME, message, view
from tests.support.fake_agents import FakeAgents
from tests.support.servers import received, served

pytestmark = pytest.mark.anyio

SCOPE_PB = scope_pb2.Scope(scoped=scope_pb2.Scoped(tenant="acme"))
SCOPE = Scope(ScopeKey(ScopeKind.SCOPED, "acme"))
AGENT: dict[str, Any] = {"scope": SCOPE_PB, "agent_id": "order-17"}
HELLO = message_pb2.Message(
    role=message_pb2.ROLE_USER, parts=[message_pb2.Part(text=message_pb2.TextPart(text="hi"))]
)


@asynccontextmanager
async def stub_of(directory: FakeAgents) -> Any:
    async with served(agents=directory) as running:
        yield pb_grpc.AgentServiceStub(running.channel)


async def refusal(directory: FakeAgents, method: str, request: Any) -> Any:
    async with stub_of(directory) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub, method)(request)
    assert directory.commands == []
    return received(caught.value)


def json(text: str) -> document_pb2.Document:
    return document_pb2.Document(media_type="application/json", json=text)


async def test_an_agent_is_started_with_its_options():
    directory = FakeAgents(
        commands.StartAgentReply(view(), started=True, options_applied=False, replayed=True)
    )
    options = pb.StartOptions(
        profile="support", conversation_id="c-1", overrides=json("{}"), tool_context=json('{"a":1}')
    )

    async with stub_of(directory) as stub:
        response = await stub.StartAgent(
            pb.StartAgentRequest(**AGENT, request_id="q-1", options=options)
        )

    stored = StartOptions(
        "support",
        Document("application/json", json="{}"),
        Document("application/json", json='{"a":1}'),
    )
    assert directory.commands == [
        commands.StartAgent(SCOPE, "order-17", "q-1", AgentOptions("c-1", stored))
    ]
    assert response.agent.status == agent_pb2.AGENT_STATUS_IDLE
    assert (response.started, response.options_applied, response.replayed) == (True, False, True)


async def test_ephemeral_tool_context_is_kept_out_of_what_is_stored():
    directory = FakeAgents(commands.StartAgentReply(view(), started=True, options_applied=True))
    options = pb.StartOptions(tool_context=json('{"token":1}'), ephemeral_tool_context=True)

    async with stub_of(directory) as stub:
        await stub.StartAgent(pb.StartAgentRequest(**AGENT, options=options))

    [command] = directory.commands
    assert command.options.options == StartOptions()
    assert command.options.ephemeral_tool_context_json == '{"token":1}'


async def test_an_agent_is_read():
    directory = FakeAgents(view(title="t"))

    async with stub_of(directory) as stub:
        response = await stub.GetAgent(pb.GetAgentRequest(**AGENT))

    assert directory.commands == [(SCOPE, "order-17")]
    assert response.agent.title == "t"


async def test_pages_of_agents_follow_one_another():
    directory = FakeAgents(
        commands.AgentPage((view(agent_id="a"), view(agent_id="b")), has_more=True),
        commands.AgentPage((view(agent_id="c"),), has_more=False),
    )
    request = pb.ListAgentsRequest(
        scope=SCOPE_PB, page_size=2, statuses=[agent_pb2.AGENT_STATUS_IDLE]
    )

    async with stub_of(directory) as stub:
        first = await stub.ListAgents(request)
        request.page_token = first.next_page_token
        second = await stub.ListAgents(request)

    assert [command.after for command in directory.commands] == ["", "b"]
    assert directory.commands[0].statuses == (AgentStatus.IDLE,)
    assert second.next_page_token == ""


async def test_a_page_ends_at_one_mebibyte():
    large = view(agent_id="a", title="x" * 700_000)
    directory = FakeAgents(commands.AgentPage((large, view(title="x" * 700_000)), has_more=False))

    async with stub_of(directory) as stub:
        response = await stub.ListAgents(pb.ListAgentsRequest(scope=SCOPE_PB))

    assert [agent.agent_id for agent in response.agents] == ["a"]
    assert response.next_page_token


async def test_a_token_of_another_list_is_refused():
    directory = FakeAgents(commands.AgentPage((view(),), has_more=True))
    async with stub_of(directory) as stub:
        page = await stub.ListAgents(pb.ListAgentsRequest(scope=SCOPE_PB))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListDisplayMessages(
                pb.ListDisplayMessagesRequest(
                    scope=SCOPE_PB, conversation_id="c", page_token=page.next_page_token
                )
            )

    assert received(caught.value).info.reason == "PAGE_TOKEN_INVALID"


async def test_an_agent_is_stopped_within_the_callers_deadline():
    directory = FakeAgents(commands.StopAgentReply(stopped=True, unsaved=2))

    async with stub_of(directory) as stub:
        response = await stub.StopAgent(pb.StopAgentRequest(**AGENT, finish_run=True), timeout=20.0)

    [command] = directory.commands
    assert command.finish_run
    assert timedelta(0) < command.timeout < timedelta(seconds=21)
    assert response == pb.StopAgentResponse(stopped=True, unsaved=2)


ROW = display_pb2.DisplayMessage(
    display_message_id="d-1", position=1, change=2, message_id="m-1", tenant="acme"
)


async def test_a_message_is_given_to_an_agent():
    row = DisplayMessage("d-1", 1, 2, "m-1", ROW.SerializeToString())
    directory = FakeAgents(
        commands.AddMessageReply("m-1", "r-1", queued=True, rows=(row,), unsaved=3, replayed=True)
    )

    async with stub_of(directory) as stub:
        response = await stub.AddMessage(
            pb.AddMessageRequest(**AGENT, request_id="q-1", message=HELLO, hold=True)
        )

    [command] = directory.commands
    assert (command.request_id, command.hold, command.display) == ("q-1", True, None)
    assert command.message.parts == (TextPart("hi"),)
    assert command.options is None
    assert command.timeout is None
    assert response == pb.AddMessageResponse(
        message_id="m-1",
        run_id="r-1",
        queued=True,
        display_messages=[ROW],
        unsaved=3,
        replayed=True,
    )


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({"display_same": pb.DisplaySame()}, DisplayChoice.SAME),
        ({"display_nothing": pb.DisplayNothing()}, DisplayChoice.NOTHING),
    ],
)
async def test_the_caller_may_decide_what_people_see(fields, choice):
    directory = FakeAgents(commands.AddMessageReply("m-1", "", queued=False))

    async with stub_of(directory) as stub:
        await stub.AddMessage(
            pb.AddMessageRequest(**AGENT, request_id="q", message=HELLO, **fields)
        )

    assert directory.commands[0].display is choice


async def test_people_may_see_another_message():
    directory = FakeAgents(commands.AddMessageReply("m-1", "", queued=False))
    other = message_pb2.Message(
        role=message_pb2.ROLE_USER, parts=[message_pb2.Part(text=message_pb2.TextPart(text="x"))]
    )

    async with stub_of(directory) as stub:
        await stub.AddMessage(
            pb.AddMessageRequest(**AGENT, request_id="q", message=HELLO, display_message=other)
        )

    assert directory.commands[0].display.parts == (TextPart("x"),)


def changed(**fields: Any) -> message_pb2.Message:
    copy = message_pb2.Message()
    copy.CopyFrom(HELLO)
    copy.MergeFrom(message_pb2.Message(**fields))
    return copy


CALL = message_pb2.Part(tool_call=message_pb2.ToolCall(call_id="c", name="n"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"message": HELLO}, "request_id"),
        ({"request_id": "q"}, "message"),
        ({"request_id": "q", "message": changed(role=message_pb2.ROLE_SYSTEM)}, "message.role"),
        ({"request_id": "q", "message": changed(message_id="m")}, "message.message_id"),
        ({"request_id": "q", "message": changed(run_id="r")}, "message.run_id"),
        (
            {"request_id": "q", "message": changed(usage=message_pb2.TokenUsage())},
            "message.usage",
        ),
        ({"request_id": "q", "message": changed(parts=[CALL])}, "message.parts[1]"),
        (
            {
                "request_id": "q",
                "message": changed(parts=[message_pb2.Part(text=message_pb2.TextPart())]),
            },
            "message.parts[1].text.text",
        ),
        (
            {"request_id": "q", "message": HELLO, "display_message": message_pb2.Message()},
            "display_message.role",
        ),
        (
            {"request_id": "q", "message": HELLO, "options": pb.StartOptions(profile="a b")},
            "options.profile",
        ),
        (
            {
                "request_id": "q",
                "message": HELLO,
                "options": pb.StartOptions(tool_context=json('{"a":"' + "x" * 65536 + '"}')),
            },
            "options.tool_context",
        ),
    ],
)
async def test_a_message_with_a_mistake_never_reaches_the_agent(fields, field):
    error = await refusal(FakeAgents(), "AddMessage", pb.AddMessageRequest(**AGENT, **fields))

    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.info.metadata["field"] == field


async def test_a_message_that_is_too_large_is_refused():
    parts = [message_pb2.Part(text=message_pb2.TextPart(text="x" * (1024 * 1024 + 1)))]
    request = pb.AddMessageRequest(
        **AGENT,
        request_id="q",
        message=message_pb2.Message(role=message_pb2.ROLE_USER, parts=parts),
    )

    error = await refusal(FakeAgents(), "AddMessage", request)

    assert (error.code, error.info.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "MESSAGE_TOO_LARGE",
    )


@pytest.mark.parametrize(
    "method",
    ["StartAgent", "GetAgent", "ListAgents", "StopAgent", "AddMessage", "StartRun", "GetRun",
     "CancelRun", "PauseRun", "ResumeAgent", "TouchAgent", "GetAgentState", "ListDisplayMessages"],
)  # fmt: skip
async def test_every_call_needs_a_scope(method):
    error = await refusal(FakeAgents(), method, getattr(pb, f"{method}Request")())

    assert error.info.reason == "SCOPE_REQUIRED"


async def test_a_run_begins():
    directory = FakeAgents(commands.StartRunReply("r-1", replayed=True))

    async with stub_of(directory) as stub:
        response = await stub.StartRun(pb.StartRunRequest(**AGENT, request_id="q-1"))

    assert directory.commands == [commands.StartRun(SCOPE, "order-17", "q-1")]
    assert response == pb.StartRunResponse(run_id="r-1", replayed=True)


@pytest.mark.parametrize(
    "fields", [{"until_tools": ["t"]}, {"until_success": True}, {"max_turns": 0}]
)
async def test_what_would_end_a_run_is_refused_and_not_ignored(fields):
    request = pb.StartRunRequest(**AGENT, request_id="q", **fields)

    error = await refusal(FakeAgents(), "StartRun", request)

    assert error.info.metadata["field"] in fields


async def test_a_run_is_read_and_waited_for():
    run = Run("r-1", TIME, turns=2, end=RunEnd.COMPLETED, end_time=TIME, unsaved=1)
    directory = FakeAgents(commands.RunReply(run, RunPhase.SETTLING, message("bye")))
    request = pb.GetRunRequest(**AGENT, run_id="r-1")
    request.wait.FromMilliseconds(1500)

    async with stub_of(directory) as stub:
        response = await stub.GetRun(request)

    assert directory.commands == [commands.GetRun(SCOPE, "order-17", "r-1", timedelta(seconds=1.5))]
    assert (response.run.phase, response.run.end, response.run.turns, response.run.unsaved) == (
        agent_pb2.RUN_PHASE_SETTLING,
        agent_pb2.RUN_END_COMPLETED,
        2,
        1,
    )
    assert response.final_message.parts[0].text.text == "bye"


@pytest.mark.parametrize("seconds", [-1, 61, 10**11])
async def test_a_wait_has_limits(seconds):
    request = pb.GetRunRequest(**AGENT, run_id="r-1")
    request.wait.seconds = seconds

    error = await refusal(FakeAgents(), "GetRun", request)

    assert error.info.metadata["field"] == "wait"


async def test_a_run_is_cancelled():
    directory = FakeAgents(commands.CancelRunReply(already_ended=True, unsaved=1))

    async with stub_of(directory) as stub:
        response = await stub.CancelRun(pb.CancelRunRequest(**AGENT, run_id="r-1"))

    assert directory.commands == [commands.CancelRun(SCOPE, "order-17", "r-1")]
    assert response == pb.CancelRunResponse(already_ended=True, unsaved=1)


async def test_a_state_of_any_size_is_read():
    text = '{"a":"' + "x" * 8_000_000 + '"}'
    directory = FakeAgents(commands.StateReply(text, 1, 7))

    async with stub_of(directory) as stub:
        response = await stub.GetAgentState(pb.GetAgentStateRequest(**AGENT))

    assert response.state.json == text
    assert (response.schema_version, response.revision) == (1, 7)


def row(number: int, text: str = "") -> DisplayMessage:
    message_pb = display_pb2.DisplayMessage(
        display_message_id=f"d-{number}",
        position=number,
        change=number + 100,
        content=display_pb2.DisplayContent(text=display_pb2.TextContent(text=text)),
    )
    return DisplayMessage(f"d-{number}", number, number + 100, "m", message_pb.SerializeToString())


@pytest.mark.parametrize(
    ("order", "after"),
    [
        (pb.DISPLAY_MESSAGE_ORDER_UNSPECIFIED, 2),
        (pb.DISPLAY_MESSAGE_ORDER_CHANGE_ASCENDING, 102),
    ],
)
async def test_pages_of_rows_follow_one_another(order, after):
    directory = FakeAgents(
        DisplayPage((row(1), row(2)), has_more=True), DisplayPage((), has_more=False)
    )
    request = pb.ListDisplayMessagesRequest(
        scope=SCOPE_PB, conversation_id="c", order=order, after=0, page_size=2
    )

    async with stub_of(directory) as stub:
        first = await stub.ListDisplayMessages(request)
        request.ClearField("after")
        request.page_token = first.next_page_token
        second = await stub.ListDisplayMessages(request)

    assert [command.after for command in directory.commands] == [0, after]
    assert [one.position for one in first.display_messages] == [1, 2]
    assert second == pb.ListDisplayMessagesResponse()


async def test_rows_are_listed_from_the_end_and_cut_at_one_mebibyte():
    rows = (row(3, "x" * 700_000), row(2, "x" * 700_000))
    directory = FakeAgents(DisplayPage(rows, has_more=False))
    order = pb.DISPLAY_MESSAGE_ORDER_POSITION_DESCENDING

    async with stub_of(directory) as stub:
        response = await stub.ListDisplayMessages(
            pb.ListDisplayMessagesRequest(scope=SCOPE_PB, conversation_id="c", order=order)
        )

    [command] = directory.commands
    assert (command.order, command.page_size) == (ListOrder.POSITION_DESCENDING, 100)
    assert [one.position for one in response.display_messages] == [3]
    assert response.next_page_token


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"conversation_id": ""}, "conversation_id"),
        ({"order": 9}, "order"),
        ({"after": -1}, "after"),
        ({"page_size": 1001}, "page_size"),
        ({"after": 1, "page_token": "x"}, "page_token"),
        ({"page_token": "x"}, "page_token"),
    ],
)
async def test_a_list_of_rows_with_a_mistake_is_refused(fields, field):
    request = pb.ListDisplayMessagesRequest(**{"scope": SCOPE_PB, "conversation_id": "c", **fields})

    error = await refusal(FakeAgents(), "ListDisplayMessages", request)

    assert error.info.metadata["field"] == field


async def test_what_an_agent_refuses_reaches_the_client_with_its_reason():
    directory = FakeAgents(InvalidStateError("INVALID_STATE", "it runs", status="running"))

    async with stub_of(directory) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.StartRun(pb.StartRunRequest(**AGENT, request_id="q"))

    error = received(caught.value)
    assert (error.code, error.info.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "INVALID_STATE",
    )
    assert error.info.metadata == {"status": "running"}
