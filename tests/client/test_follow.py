"""What a follower does when the server says something unpleasant: a real server says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from sagentry.api.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
)
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.client import (
    Client,
    DataLossError,
    Disconnected,
    Follower,
    InvalidArgumentError,
    Place,
    RowsDelayed,
    RowsRead,
    StreamEndedError,
)
from tests.support.servers import short_folder

pytestmark = pytest.mark.anyio

AGENT = agent_pb2.Agent(agent_id="a", conversation_id="c", live=True)
SNAPSHOT = pb.StreamItem(snapshot=pb.Snapshot(agent=AGENT, last_piece=True, reset=True))


def response(*items: pb.StreamItem, cursor: str = "1", last: int = 0) -> pb.SubscribeEventsResponse:
    return pb.SubscribeEventsResponse(items=items, cursor=cursor, last_sequence=last)


def title(sequence: int, text: str) -> pb.StreamItem:
    event = pb.Event(sequence=sequence, title_changed=pb.TitleChanged(title=text))
    return pb.StreamItem(event=event)


def begun(sequence: int, message_id: str = "m") -> pb.StreamItem:
    started = pb.MessageStarted(message_id=message_id, role=message_pb2.ROLE_ASSISTANT)
    return pb.StreamItem(event=pb.Event(sequence=sequence, message_started=started))


def part(index: int = 0) -> pb.StreamItem:
    started = pb.PartStarted(kind=pb.PART_KIND_TEXT)
    return pb.StreamItem(delta=pb.Delta(message_id="m", part_index=index, part_started=started))


def text(offset: int, piece: str) -> pb.StreamItem:
    grown = pb.TextDelta(offset=offset, text=piece)
    return pb.StreamItem(delta=pb.Delta(message_id="m", part_index=0, text=grown))


def end(*, reconnect: bool) -> pb.StreamItem:
    reason = pb.STREAM_END_REASON_DELETED
    return pb.StreamItem(end=pb.StreamEnd(reason=reason, reconnect=reconnect))


def row(change: int, text: str = "") -> display_pb2.DisplayMessage:
    content = display_pb2.DisplayContent(text=display_pb2.TextContent(text=text))
    return display_pb2.DisplayMessage(
        display_message_id=f"row-{change}", position=change, change=change, content=content
    )


class Failure:
    """An answer that is an error."""

    def __init__(self, code: grpc.StatusCode, reason: str = "") -> None:
        self.code = code
        self.reason = reason

    async def abort(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if not self.reason:
            await context.abort(self.code, "broken")
        status = status_pb2.Status(code=self.code.value[0], message="no")
        assert code_pb2.Code.Name(status.code) == self.code.name
        status.details.add().Pack(
            error_details_pb2.ErrorInfo(reason=self.reason, domain="sagentry")
        )
        await context.abort_with_status(rpc_status.to_status(status))


Step = pb.SubscribeEventsResponse | Failure


class Server:
    """Plays one script per stream, and then waits; pages are answered one after the other."""

    def __init__(self, streams: list[list[Step]], pages: list[Any] | None = None) -> None:
        self.streams = list(streams)
        self.pages = list(pages or [])
        self.cursors: list[str] = []
        self.asked: list[int] = []

    async def subscribe_events(
        self, request: pb.SubscribeEventsRequest, context: Any
    ) -> AsyncIterator[pb.SubscribeEventsResponse]:
        self.cursors.append(request.from_cursor)
        for step in self.streams.pop(0):
            if isinstance(step, Failure):
                await step.abort(context)
            else:
                yield step
        if not self.streams:
            await asyncio.Event().wait()

    async def list_display_messages(
        self, request: agent_service_pb2.ListDisplayMessagesRequest, context: Any
    ) -> agent_service_pb2.ListDisplayMessagesResponse:
        assert request.conversation_id == "c"
        self.asked.append(request.after)
        page = self.pages.pop(0) if self.pages else []
        if isinstance(page, Failure):
            await page.abort(context)
        token = "more" if self.pages else ""
        return agent_service_pb2.ListDisplayMessagesResponse(
            display_messages=page, next_page_token=token
        )


def handlers(server: Server) -> grpc.GenericRpcHandler:
    """The two methods that a follower calls."""
    calls: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "/sagentry.api.agent.v1.EventService/SubscribeEvents": grpc.unary_stream_rpc_method_handler(
            server.subscribe_events,
            request_deserializer=pb.SubscribeEventsRequest.FromString,
            response_serializer=pb.SubscribeEventsResponse.SerializeToString,
        ),
        "/sagentry.api.agent.v1.AgentService/ListDisplayMessages": (
            grpc.unary_unary_rpc_method_handler(
                server.list_display_messages,
                request_deserializer=agent_service_pb2.ListDisplayMessagesRequest.FromString,
                response_serializer=agent_service_pb2.ListDisplayMessagesResponse.SerializeToString,
            )
        ),
    }

    class Handlers(grpc.GenericRpcHandler):
        def service(
            self, details: grpc.HandlerCallDetails
        ) -> grpc.RpcMethodHandler[Any, Any] | None:
            return calls.get(str(details.method))

    return Handlers()


@asynccontextmanager
async def following(server: Server, **options: Any) -> AsyncIterator[Follower]:
    running = grpc.aio.server()
    running.add_generic_rpc_handlers((handlers(server),))
    with short_folder() as folder:
        address = f"unix:{folder}/s"
        running.add_insecure_port(address)
        await running.start()
        try:
            async with (
                Client.connect(address) as client,
                client.scope("acme").follow("a", **options) as follower,
            ):
                yield follower
        finally:
            await running.stop(None)


async def items(follower: Follower, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(20):
        async for item in follower:
            if not isinstance(item, RowsRead):
                found.append(item)
            if len(found) == count:
                break
    return found


def titles(found: list[Any]) -> list[str]:
    return [one.title_changed.title for one in found if isinstance(one, pb.Event)]


async def test_a_stream_that_closes_without_an_end_goes_on_after_its_last_response() -> None:
    server = Server(
        [
            [response(SNAPSHOT), response(title(1, "x"), cursor="2", last=1)],
            [response(title(2, "y"), cursor="3", last=2)],
        ]
    )
    async with following(server) as follower:
        found = await items(follower, 4)

    assert [type(one) for one in found] == [pb.Snapshot, pb.Event, Disconnected, pb.Event]
    assert titles(found) == ["x", "y"]
    assert server.cursors == ["", "2"]


async def test_what_a_reader_had_of_a_response_is_not_told_again() -> None:
    again = response(title(1, "x"), title(2, "y"), cursor="2", last=2)
    server = Server([[response(SNAPSHOT), again], [again, response(title(3, "z"), last=3)]])
    async with following(server) as first:
        await items(first, 2)
        view, place = first.view, first.place

    assert place == Place("1", 1)
    server.streams = [[again, response(title(3, "z"), last=3)]]
    async with following(server, view=view, place=place) as second:
        assert titles(await items(second, 2)) == ["y", "z"]
    assert server.cursors == ["", "1"]


@pytest.mark.parametrize(
    "wrong",
    [
        response(title(3, "leaves one out"), last=3),
        response(title(1, "x"), last=2),
        response(begun(1), part(1), last=1),
        response(begun(1), part(), text(4, "too far"), last=1),
        response(text(0, "of no message"), last=0),
    ],
    ids=["sequence", "last sequence", "part", "offset", "message"],
)
async def test_a_gap_is_answered_by_a_new_snapshot(wrong: pb.SubscribeEventsResponse) -> None:
    server = Server([[response(SNAPSHOT, cursor="7"), wrong], [response(SNAPSHOT, cursor="8")]])
    async with following(server) as follower:
        await items(follower, 1)
        while not isinstance((await items(follower, 1))[0], pb.Snapshot):
            pass

    assert server.cursors == ["", ""]
    assert not follower.view.growing


async def test_pieces_of_text_that_are_there_already_are_not_told_again() -> None:
    grown = response(begun(1), part(), text(0, "He\u0301"), cursor="2", last=1)
    server = Server(
        [
            [response(SNAPSHOT), grown],
            [
                response(begun(1), part(), text(0, "He\u0301"), text(4, "llo"), cursor="3", last=1),
                response(title(2, "end"), cursor="4", last=2),
            ],
        ]
    )
    async with following(server, place=Place("1", 0)) as follower:
        # As if the cursor had been stored before the response.
        found = await items(follower, 4)
        follower.place = Place("1", follower.place.sequence)
        found += await items(follower, 3)

    assert "".join(one.text.text for one in found if isinstance(one, pb.Delta)) == "He\u0301llo"
    assert follower.view.growing["m"].parts[0].text == "He\u0301llo"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (response(end(reconnect=False)), StreamEndedError),
        (Failure(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"), InvalidArgumentError),
    ],
)
async def test_what_trying_again_cannot_mend_is_raised(step: Step, error: type[Exception]) -> None:
    async with following(Server([[response(SNAPSHOT), step], []])) as follower:
        with pytest.raises(error):
            await items(follower, 9)


@pytest.mark.parametrize(
    "step",
    [
        response(end(reconnect=True), cursor="2"),
        Failure(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING"),
        Failure(grpc.StatusCode.INTERNAL),
        Failure(grpc.StatusCode.UNKNOWN),
    ],
    ids=["end", "draining", "reset", "proxy"],
)
async def test_what_passes_is_waited_for(step: Step) -> None:
    server = Server([[response(SNAPSHOT), step], [response(title(1, "x"), last=1)]])
    async with following(server) as follower:
        assert titles(await items(follower, 3)) == ["x"]


async def test_a_cursor_that_the_server_does_not_know_leads_to_a_snapshot() -> None:
    refused = Failure(grpc.StatusCode.INVALID_ARGUMENT, "CURSOR_INVALID")
    server = Server([[refused], [response(SNAPSHOT)]])
    async with following(server, place=Place("old", 5)) as follower:
        assert isinstance((await items(follower, 2))[1], pb.Snapshot)

    assert server.cursors == ["old", ""]


async def test_a_transcript_is_read_to_its_end_although_the_store_is_away_for_a_while() -> None:
    away = Failure(grpc.StatusCode.UNAVAILABLE, "PLUGIN_UNAVAILABLE")
    server = Server(
        [[response(SNAPSHOT, cursor="1")]], [[row(1), row(2)], away, [row(3), row(2, "old")]]
    )
    delays = 0
    async with asyncio.timeout(20), following(server) as follower:
        async for item in follower:
            delays += isinstance(item, RowsDelayed)
            if isinstance(item, RowsRead) and item.is_complete:
                break

    assert delays == 1
    assert server.asked == [0, 2, 2]
    assert [one.position for one in follower.view.transcript()] == [1, 2, 3]
    assert not follower.view.rows["row-2"].content.text.text
    assert follower.view.complete_to == 3


async def test_a_transcript_that_cannot_be_read_for_good_is_an_error() -> None:
    lost = Failure(grpc.StatusCode.DATA_LOSS, "STATE_UNREADABLE")
    async with following(Server([[response(SNAPSHOT)]], [lost])) as follower:
        with pytest.raises(DataLossError):
            await items(follower, 9)


async def test_a_snapshot_in_pieces_is_told_as_one() -> None:
    held = [message_pb2.Message(message_id=f"m{n}") for n in range(2)]
    first = pb.StreamItem(snapshot=pb.Snapshot(agent=AGENT, held_messages=held[:1], reset=True))
    rest = pb.StreamItem(snapshot=pb.Snapshot(held_messages=held[1:], last_piece=True))
    server = Server([[response(first, last=4), response(rest, title(5, "x"), cursor="2", last=5)]])
    async with following(server) as follower:
        found = await items(follower, 2)

    assert [one.message_id for one in found[0].held_messages] == ["m0", "m1"]
    assert follower.view.agent.title == "x"
