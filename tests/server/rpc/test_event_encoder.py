from __future__ import annotations

import pytest

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2, document_pb2, message_pb2
from sagentry.server.domain import events
from sagentry.server.domain.display import DisplayMessage, Todo, TodoStatus, ToolInfo
from sagentry.server.domain.messages import Document, Role, TokenUsage
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError, StopReason
from sagentry.server.rpc.event_encoder import ProtoEventEncoder
from sagentry.server.rpc.frames import number_field, varint
from tests.support.events import TIME, message, snapshot, view

ENCODER = ProtoEventEncoder()

ROW = display_pb2.DisplayMessage(
    display_message_id="d-1", position=1, change=2, message_id="m-1", tenant="acme"
)
KEPT_ROW = DisplayMessage("d-1", 1, 2, "m-1", ROW.SerializeToString())
TODO = display_pb2.Todo(id=1, content="c", status=display_pb2.TODO_STATUS_IN_PROGRESS)
MESSAGE = message_pb2.Message(
    message_id="m-1",
    role=message_pb2.ROLE_ASSISTANT,
    parts=[message_pb2.Part(text=message_pb2.TextPart(text="hi"))],
    status=message_pb2.MESSAGE_STATUS_COMPLETE,
)
MESSAGE.create_time.FromDatetime(TIME)

BODIES = [
    (
        events.AgentStarted("p", restored=True, previous_owner="s-2"),
        {"agent_started": pb.AgentStarted(profile="p", restored=True, previous_owner="s-2")},
    ),
    (
        events.AgentStopped(StopReason.FENCED),
        {"agent_stopped": pb.AgentStopped(reason=pb.STOP_REASON_FENCED)},
    ),
    (
        events.StatusChanged(AgentStatus.ERROR, RunError("R", "m", retryable=True)),
        {
            "status_changed": pb.StatusChanged(
                status=agent_pb2.AGENT_STATUS_ERROR,
                error=agent_pb2.RunError(reason="R", message="m", retryable=True),
            )
        },
    ),
    (
        events.RunStarted("m-1", resumed=True),
        {"run_started": pb.RunStarted(message_id="m-1", resumed=True)},
    ),
    (events.RunStarted(), {"run_started": pb.RunStarted()}),
    (
        events.RunEnded(RunEnd.LOST, None, TokenUsage(input_tokens=0), 2),
        {
            "run_ended": pb.RunEnded(
                end=agent_pb2.RUN_END_LOST,
                usage=message_pb2.TokenUsage(input_tokens=0),
                unsaved=2,
            )
        },
    ),
    (
        events.MessageStarted("m-1", Role.TOOL),
        {"message_started": pb.MessageStarted(message_id="m-1", role=message_pb2.ROLE_TOOL)},
    ),
    (
        events.MessageCompleted(message()),
        {"message_completed": pb.MessageCompleted(message=MESSAGE)},
    ),
    (
        events.MessageTruncated(message()),
        {"message_truncated": pb.MessageTruncated(message_id="m-1", message=MESSAGE)},
    ),
    (events.MessageQueued(message()), {"message_queued": pb.MessageQueued(message=MESSAGE)}),
    (
        events.ToolCallUpdated(
            "m-1", "c-1", events.ToolCallStep.FAILED, ToolInfo(name="n", error="e")
        ),
        {
            "tool_call_updated": pb.ToolCallUpdated(
                message_id="m-1",
                call_id="c-1",
                step=pb.TOOL_CALL_STEP_FAILED,
                tool_info=display_pb2.ToolInfo(name="n", error="e"),
            )
        },
    ),
    (
        events.DisplayMessageSaved(KEPT_ROW),
        {"display_message_saved": pb.DisplayMessageSaved(display_message=ROW)},
    ),
    (
        events.DisplayMessageUpdated(KEPT_ROW),
        {"display_message_updated": pb.DisplayMessageUpdated(display_message=ROW)},
    ),
    (
        events.TodosUpdated((Todo(1, "c", TodoStatus.IN_PROGRESS),)),
        {"todos_updated": pb.TodosUpdated(todos=[TODO])},
    ),
    (events.TodosUpdated(()), {"todos_updated": pb.TodosUpdated()}),
    (events.TitleChanged("t"), {"title_changed": pb.TitleChanged(title="t")}),
    (
        events.PluginDegraded("store", "SaveMessage", "PLUGIN_TIMEOUT", "it waits"),
        {
            "plugin_degraded": pb.PluginDegraded(
                plugin="store",
                method="SaveMessage",
                reason="PLUGIN_TIMEOUT",
                consequence="it waits",
            )
        },
    ),
    (
        events.PluginRecovered("store"),
        {"plugin_recovered": pb.PluginRecovered(plugin="store")},
    ),
    (
        events.WriteRejected("store", "SaveMessage", "m-1", "QUOTA", "41"),
        {
            "write_rejected": pb.WriteRejected(
                plugin="store",
                method="SaveMessage",
                message_id="m-1",
                reason="QUOTA",
                entry_id="41",
            )
        },
    ),
    (
        events.HistoryRepaired((events.HistoryRepair("m-1", "c-1", "added a result"),)),
        {
            "history_repaired": pb.HistoryRepaired(
                repairs=[
                    pb.HistoryRepair(message_id="m-1", call_id="c-1", description="added a result")
                ]
            )
        },
    ),
    (
        events.CustomEvent("n", Document("application/json", json="{}")),
        {
            "custom": pb.CustomEvent(
                name="n",
                document=document_pb2.Document(media_type="application/json", json="{}"),
            )
        },
    ),
]


def framed(**item) -> bytes:
    return pb.SubscribeEventsResponse(items=[pb.StreamItem(**item)]).SerializeToString()


def event(body: events.EventBody) -> events.Event:
    return events.Event(300, "order-17", "c-17", "r-1", 7, TIME, body, ("call-1", "call-2"))


@pytest.mark.parametrize(("body", "arm"), BODIES)
def test_an_event_is_byte_for_byte_what_the_generated_code_writes(body, arm):
    expected = pb.Event(
        sequence=300,
        agent_id="order-17",
        conversation_id="c-17",
        run_id="r-1",
        owner_epoch=7,
        subagent_path=["call-1", "call-2"],
        **arm,
    )
    expected.time.FromDatetime(TIME)

    assert ENCODER.encode_event(event(body)) == framed(event=expected)


def test_every_event_of_the_domain_is_covered():
    assert {type(body) for body, _arm in BODIES} == set(events.KIND_OF)


DELTAS = [
    (events.TextDelta(3, "é"), {"text": pb.TextDelta(offset=3, text="é")}),
    (events.TextDelta(0, ""), {"text": pb.TextDelta()}),
    (events.ArgumentsDelta(5, "{"), {"arguments": pb.TextDelta(offset=5, text="{")}),
    (events.ArgumentsDelta(0, ""), {"arguments": pb.TextDelta()}),
    (events.SignatureDelta(b""), {"signature": b""}),
    (events.PartFinished(), {"part_finished": pb.PartFinished()}),
    (
        events.PartStarted(events.PartKind.TOOL_CALL, "c-1", "n"),
        {"part_started": pb.PartStarted(kind=pb.PART_KIND_TOOL_CALL, call_id="c-1", name="n")},
    ),
]


@pytest.mark.parametrize(("body", "arm"), DELTAS)
def test_a_delta_is_byte_for_byte_what_the_generated_code_writes(body, arm):
    delta = events.Delta("m-1", 2, "r-1", body, ("call-1",))
    expected = pb.Delta(
        message_id="m-1", part_index=2, run_id="r-1", subagent_path=["call-1"], **arm
    )

    assert ENCODER.encode_delta(delta) == framed(delta=expected)


def test_items_without_content_are_what_the_generated_code_writes():
    assert ENCODER.caught_up == framed(caught_up=pb.CaughtUp())
    assert ENCODER.bookmark == framed(bookmark=pb.Bookmark())


def test_lagged_and_end_are_what_the_generated_code_writes():
    end = pb.StreamEnd(reason=pb.STREAM_END_REASON_TOKEN_EXPIRED, reconnect=True)

    assert ENCODER.encode_lagged(2, 300) == framed(
        lagged=pb.Lagged(from_sequence=2, to_sequence=300)
    )
    assert ENCODER.encode_end(events.StreamEndReason.TOKEN_EXPIRED, reconnect=True) == framed(
        end=end
    )


def test_a_snapshot_shows_all_of_the_agent():
    run = Run("r-1", TIME, turns=2, end=RunEnd.COMPLETED, end_time=TIME, unsaved=1)
    agent = view(
        status=AgentStatus.RUNNING,
        run_id="r-2",
        todos=(Todo(1, "c", TodoStatus.IN_PROGRESS),),
        title="t",
        held_messages=1,
        error=RunError("R", "m"),
        pause_reason="p",
        owner_epoch=7,
        last_activity_time=TIME,
        viewers=3,
    )
    now = events.Snapshot(
        agent,
        growing_messages=(message(),),
        calls=(events.ToolCallUpdated("m-1", "c-1", events.ToolCallStep.EXECUTING, ToolInfo()),),
        held_messages=(message(message_id="m-2"),),
        runs=(run, Run("r-2", TIME)),
        last_position=4,
        last_change=5,
    )

    [frame] = ENCODER.encode_snapshot(now, reset=True)

    [item] = pb.SubscribeEventsResponse.FromString(frame).items
    shown = item.snapshot
    assert (shown.agent.status, shown.agent.viewers) == (agent_pb2.AGENT_STATUS_RUNNING, 3)
    assert shown.agent.todos[0] == TODO
    assert shown.growing_messages[0] == MESSAGE
    assert shown.calls[0].step == pb.TOOL_CALL_STEP_EXECUTING
    assert [one.message_id for one in shown.held_messages] == ["m-2"]
    assert [(one.phase, one.end) for one in shown.runs] == [
        (agent_pb2.RUN_PHASE_ENDED, agent_pb2.RUN_END_COMPLETED),
        (agent_pb2.RUN_PHASE_MODEL, agent_pb2.RUN_END_UNSPECIFIED),
    ]
    assert (shown.last_position, shown.last_change) == (4, 5)
    assert (shown.last_piece, shown.reset) == (True, True)


def test_a_response_is_frames_and_its_cursor():
    frames = [ENCODER.caught_up, ENCODER.encode_lagged(1, 2)]

    encoded = ENCODER.response(frames, "c" * 200, 2**40)

    assert (
        encoded
        == pb.SubscribeEventsResponse(
            items=[
                pb.StreamItem(caught_up=pb.CaughtUp()),
                pb.StreamItem(lagged=pb.Lagged(from_sequence=1, to_sequence=2)),
            ],
            cursor="c" * 200,
            last_sequence=2**40,
        ).SerializeToString()
    )


def test_a_response_without_sequence_leaves_it_out():
    assert (
        ENCODER.response([], "c", 0) == pb.SubscribeEventsResponse(cursor="c").SerializeToString()
    )


def test_an_empty_snapshot_is_one_piece():
    assert len(ENCODER.encode_snapshot(snapshot(), reset=False)) == 1


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (2**63 - 1, b"\xff" * 8 + b"\x7f")],
)
def test_numbers_are_written_as_varints(number, encoded):
    assert varint(number) == encoded
    assert number_field(1, 0) == b""
