from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc.aio
import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.api.agent.v1 import event_service_pb2 as event_pb
from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.client import (
    Client,
    ConflictError,
    DataLossError,
    DeadlineExceededError,
    EventStream,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    LimitExceededError,
    NotFoundError,
    PermissionDeniedError,
    SagentryError,
    UnauthenticatedError,
    UnavailableError,
)
from sagentry.client._channel import is_local
from sagentry.server import errors
from sagentry.server.domain import commands
from sagentry.server.domain.commands import DisplayChoice
from sagentry.server.domain.display import DisplayMessage, DisplayPage, ListOrder
from sagentry.server.domain.events import EventKind, LagPolicy, StreamEndReason
from sagentry.server.domain.messages import TextPart
from sagentry.server.domain.runs import Run, RunEnd, RunPhase
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from tests.support.events import TIME, message, publish, view
from tests.support.fake_agents import FakeAgents
from tests.support.servers import served, short_folder

pytestmark = pytest.mark.anyio

SCOPE = Scope(ScopeKey(ScopeKind.SCOPED, "acme", "u-1"), "text/plain", b"token")


@asynccontextmanager
async def scope_of(directory: FakeAgents) -> Any:
    async with served(agents=directory) as running:
        target = str(running.server.addresses[0])
        async with Client.connect(target) as client:
            yield client.scope("acme", "u-1", payload=b"token", media_type="text/plain")


async def test_every_call_is_for_the_clients_scope():
    directory = FakeAgents(view(title="t"), commands.StateReply("{}", 1, 2))

    async with scope_of(directory) as scope:
        agent = await scope.get_agent("order-17")
        state = await scope.get_state("order-17")

    assert directory.commands == [(SCOPE, "order-17"), (SCOPE, "order-17")]
    assert agent.title == "t"
    assert state.state.json == "{}"


async def test_data_of_no_tenant_has_a_client_of_its_own():
    directory = FakeAgents(view())

    async with (
        served(agents=directory) as running,
        Client.connect(str(running.server.addresses[0])) as client,
    ):
        await client.unscoped().get_agent("order-17")

    assert directory.commands == [(Scope(ScopeKey(ScopeKind.UNSCOPED)), "order-17")]


async def test_a_text_is_a_users_message():
    directory = FakeAgents(commands.AddMessageReply("m-1", "r-1", queued=False))

    async with scope_of(directory) as scope:
        reply = await scope.add_message("order-17", "hello", hold=True)

    [command] = directory.commands
    assert command.message.parts == (TextPart("hello"),)
    assert (command.hold, command.display) == (True, None)
    assert command.request_id
    assert reply.run_id == "r-1"


@pytest.mark.parametrize(
    ("display", "choice"),
    [(pb.DisplaySame(), DisplayChoice.SAME), (pb.DisplayNothing(), DisplayChoice.NOTHING)],
)
async def test_the_caller_may_decide_what_people_see(display, choice):
    directory = FakeAgents(commands.AddMessageReply("m-1", "r-1", queued=False))

    async with scope_of(directory) as scope:
        await scope.add_message("order-17", "hello", display=display)

    assert directory.commands[0].display is choice


async def test_a_whole_message_and_another_one_for_people_can_be_given():
    directory = FakeAgents(commands.AddMessageReply("m-1", "r-1", queued=False))
    part = message_pb2.Part(text=message_pb2.TextPart(text="x"))
    whole = message_pb2.Message(role=message_pb2.ROLE_USER, parts=[part, part])

    async with scope_of(directory) as scope:
        await scope.add_message("order-17", whole, display=whole, request_id="mine")

    [command] = directory.commands
    assert command.request_id == "mine"
    assert len(command.message.parts) == len(command.display.parts) == 2


async def test_agents_are_started_and_stopped():
    directory = FakeAgents(
        commands.StartAgentReply(view(), started=True, options_applied=True),
        commands.StopAgentReply(stopped=True),
    )

    async with scope_of(directory) as scope:
        await scope.start_agent("order-17", options=pb.StartOptions(profile="support"))
        stopped = await scope.stop_agent("order-17", finish_run=True)

    assert directory.commands[0].options.options.profile == "support"
    assert directory.commands[0].request_id
    assert directory.commands[1].finish_run
    assert stopped.stopped


async def test_runs_are_begun_waited_for_and_cancelled():
    run = Run("r-1", TIME, end=RunEnd.COMPLETED, end_time=TIME)
    directory = FakeAgents(
        commands.StartRunReply("r-1"),
        commands.RunReply(run, RunPhase.ENDED, message("bye")),
        commands.CancelRunReply(already_ended=True),
    )

    async with scope_of(directory) as scope:
        begun = await scope.start_run("order-17")
        read = await scope.get_run("order-17", begun.run_id, wait=timedelta(seconds=1))
        cancelled = await scope.cancel_run("order-17", begun.run_id)

    assert directory.commands[1].wait == timedelta(seconds=1)
    assert read.final_message.parts[0].text.text == "bye"
    assert cancelled.already_ended


async def test_lists_are_read_page_by_page():
    rows = [
        DisplayMessage(
            f"d-{number}",
            number,
            number,
            "m",
            display_pb2.DisplayMessage(position=number).SerializeToString(),
        )
        for number in (1, 2, 3)
    ]
    directory = FakeAgents(
        DisplayPage(tuple(rows[:2]), has_more=True),
        DisplayPage(tuple(rows[2:]), has_more=False),
        commands.AgentPage((view(agent_id="a"),), has_more=True),
        commands.AgentPage((view(agent_id="b"),), has_more=False),
    )

    async with scope_of(directory) as scope:
        order = pb.DISPLAY_MESSAGE_ORDER_CHANGE_ASCENDING
        listed = scope.list_display_messages("c", order=order, after=0, page_size=2)
        positions = [row.position async for row in listed]
        agents = [agent.agent_id async for agent in scope.list_agents(page_size=1)]

    assert positions == [1, 2, 3]
    assert agents == ["a", "b"]
    assert [command.after for command in directory.commands] == [0, 2, "", "a"]
    assert directory.commands[0].order is ListOrder.CHANGE_ASCENDING


async def test_a_stream_hands_out_items_and_knows_where_to_go_on():
    directory = FakeAgents()

    async with scope_of(directory) as scope, scope.subscribe("order-17") as stream:
        kinds = [(await anext(stream)).WhichOneof("item"), (await anext(stream)).WhichOneof("item")]
        before = stream.cursor
        publish(directory.log)
        event = await anext(stream)
        first_cursor = stream.cursor
        directory.log.end(StreamEndReason.DRAINING, reconnect=True)
        rest = [item.WhichOneof("item") async for item in stream]

    assert kinds == ["snapshot", "caught_up"]
    assert before == ""
    assert event.event.sequence == 1
    assert first_cursor.endswith(".0.0")
    assert rest == ["end"]
    assert stream.cursor.endswith(".1.1")
    assert stream.last_sequence == 1


async def test_what_a_reader_asks_for_reaches_the_server():
    directory = FakeAgents(errors.InvalidInputError("agent_id", "is wrong"))

    async with scope_of(directory) as scope:
        with pytest.raises(InvalidArgumentError):
            await anext(
                scope.subscribe(
                    "order-17",
                    cursor="c",
                    kinds=[event_pb.EVENT_KIND_RUN],
                    policy=event_pb.LAG_POLICY_DISCONNECT,
                    viewer_id="alice",
                    wake=True,
                )
            )

    [command] = directory.commands
    assert (command.cursor, command.kinds, command.policy) == (
        "c",
        {EventKind.RUN},
        LagPolicy.DISCONNECT,
    )
    assert (command.viewer_id, command.wake, command.debug) == ("alice", True, False)


async def test_leaving_a_stream_ends_the_call():
    directory = FakeAgents()

    async with scope_of(directory) as scope:
        async with scope.subscribe("order-17") as stream:
            await anext(stream)
            await anext(stream)

        rest = [item async for item in stream]

    assert rest == []


async def test_cancelling_who_reads_a_stream_is_not_swallowed():
    async with scope_of(FakeAgents()) as scope, scope.subscribe("order-17") as stream:
        await anext(stream)
        await anext(stream)

        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(read_next(stream))
            await asyncio.sleep(0)
            waiting.cancel()

    assert waiting.cancelled()


async def read_next(stream: EventStream) -> event_pb.StreamItem:
    return await anext(stream)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (errors.InvalidInputError("f", "p"), InvalidArgumentError),
        (errors.NotFoundError("AGENT_NOT_FOUND", "m"), NotFoundError),
        (errors.ConflictError("REQUEST_ID_REUSED", "m"), ConflictError),
        (errors.InvalidStateError("INVALID_STATE", "m"), FailedPreconditionError),
        (errors.LimitExceededError("AGENT_BUSY", "m", limit=1, actual=1), LimitExceededError),
        (errors.CorruptDataError("STATE_CORRUPT", "m"), DataLossError),
        (errors.UnauthenticatedError("UNAUTHENTICATED", "m"), UnauthenticatedError),
        (errors.PermissionDeniedError("PERMISSION_DENIED", "m"), PermissionDeniedError),
        (errors.SagentryError("INTERNAL", "m"), InternalError),
    ],
)
async def test_each_kind_of_refusal_has_its_error(raised, expected):
    async with scope_of(FakeAgents(raised)) as scope:
        with pytest.raises(SagentryError) as caught:
            await scope.get_agent("order-17")

    assert type(caught.value) is expected
    assert caught.value.reason == raised.reason
    assert caught.value.metadata == raised.metadata


async def test_an_error_says_what_is_wrong_and_what_may_be_shown():
    raised = errors.InvalidStateError("MESSAGE_REJECTED", "rejected")
    raised.user_message = "No mentions, please."
    raised.violations = (("parts[0].text", "mentions @bob"),)

    async with scope_of(FakeAgents(raised)) as scope:
        with pytest.raises(FailedPreconditionError) as caught:
            await scope.add_message("order-17", "hi @bob")

    assert caught.value.user_message == "No mentions, please."
    assert caught.value.violations == (("parts[0].text", "mentions @bob"),)
    assert str(caught.value) == "MESSAGE_REJECTED: rejected"


async def test_a_call_is_repeated_as_it_is_while_the_server_is_away():
    away = errors.UnavailableError("SERVER_STARTING", "wait")
    directory = FakeAgents(away, away, commands.AddMessageReply("m-1", "r-1", queued=False))

    async with scope_of(directory) as scope:
        reply = await scope.add_message("order-17", "hello")

    assert reply.message_id == "m-1"
    assert len({command.request_id for command in directory.commands}) == 1
    assert len(directory.commands) == 3


async def test_a_call_is_not_repeated_past_its_time():
    away = errors.UnavailableError("SERVER_DRAINING", "bye", retry_after=timedelta(seconds=60))
    directory = FakeAgents(away)

    async with scope_of(directory) as scope:
        with pytest.raises(UnavailableError) as caught:
            await scope.add_message("order-17", "hello")

    assert caught.value.retry_after == timedelta(seconds=60)


async def test_a_cancel_of_whatever_runs_is_not_repeated():
    directory = FakeAgents(errors.UnavailableError("SERVER_STARTING", "wait"))

    async with scope_of(directory) as scope:
        with pytest.raises(UnavailableError):
            await scope.cancel_run("order-17")

    assert len(directory.commands) == 1


async def test_a_server_that_is_not_there_is_named_unavailable():
    with short_folder() as folder:
        async with Client.connect(f"unix:{folder}/none") as client:
            with pytest.raises(UnavailableError) as caught:
                await client.scope("acme").get_agent("a", timeout=timedelta(milliseconds=20))

    assert caught.value.reason == ""


async def test_a_server_that_does_not_answer_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        async with Client.connect(target) as client:
            with pytest.raises(DeadlineExceededError) as caught:
                await client.scope("acme").get_agent("a", timeout=timedelta(milliseconds=20))

    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_state_beyond_the_default_limit_of_grpc_is_received():
    directory = FakeAgents(commands.StateReply('"' + "x" * 8_000_000 + '"', 1, 1))

    async with scope_of(directory) as scope:
        state = await scope.get_state("order-17")

    assert len(state.state.json) == 8_000_002


async def test_metadata_goes_with_every_call():
    directory = FakeAgents(view())
    async with served(agents=directory) as running:
        target = str(running.server.addresses[0])
        async with Client.connect(target, metadata=(("x-request-id", "mine"),)) as client:
            agent = await client.scope("acme").get_agent("order-17")

    assert agent.status == agent_pb2.AGENT_STATUS_IDLE


async def test_a_proxy_in_the_environment_has_no_say_for_loopback(monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async with scope_of(FakeAgents(view())) as scope:
        agent = await scope.get_agent("order-17", timeout=timedelta(seconds=5))

    assert agent.agent_id == "order-17"


@pytest.mark.parametrize(
    ("target", "local"),
    [
        ("unix:/run/s.sock", True),
        ("unix:///run/s.sock", True),
        ("unix-abstract:s", True),
        ("localhost:1", True),
        ("localhost", True),
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("ipv6:[::1]:1", True),
        ("dns:localhost:1", True),
        ("dns:///localhost:1", True),
        ("dns://8.8.8.8/localhost:1", True),
        ("dns:///agents.example.com:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
        ("[2001:db8::1]:1", False),
    ],
)
def test_what_is_this_machine(target, local):
    assert is_local(target) is local
