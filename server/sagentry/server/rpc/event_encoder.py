"""Makes the bytes of the event stream; implements the port `EventEncoder`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import Message

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain.events import DebugBody, Delta, Event, Snapshot, StreamEndReason
from sagentry.server.rpc.convert import agent_to_pb, run_error_to_pb, run_to_pb
from sagentry.server.rpc.event_bodies import (
    STREAM_END_REASONS,
    delta_to_pb,
    encoded_event,
    tool_call_to_pb,
)
from sagentry.server.rpc.frames import message_field, number_field
from sagentry.server.wire.message import message_to_pb

MAX_PIECE_BYTES = 3 * 1024 * 1024 - 4096
"""Largest piece of a snapshot: a response with it and its cursor is under 3 MiB."""

_ITEMS = pb.SubscribeEventsResponse.ITEMS_FIELD_NUMBER
_CURSOR = pb.SubscribeEventsResponse.CURSOR_FIELD_NUMBER
_LAST_SEQUENCE = pb.SubscribeEventsResponse.LAST_SEQUENCE_FIELD_NUMBER


class ProtoEventEncoder:
    """Encodes with the generated code, and joins by hand what is encoded already."""

    def __init__(self) -> None:
        self.caught_up = _frame(pb.StreamItem.CAUGHT_UP_FIELD_NUMBER, b"")
        self.bookmark = _frame(pb.StreamItem.BOOKMARK_FIELD_NUMBER, b"")

    def encode_event(self, event: Event) -> bytes:
        """Returns the frame of a durable event."""
        return _frame(pb.StreamItem.EVENT_FIELD_NUMBER, encoded_event(event))

    def encode_delta(self, delta: Delta) -> bytes:
        """Returns the frame of a delta."""
        return _frame(pb.StreamItem.DELTA_FIELD_NUMBER, delta_to_pb(delta).SerializeToString())

    def encode_debug(self, body: DebugBody) -> bytes:
        """Returns the frame of a debug event."""
        failed = pb.ModelAttemptFailed(
            model=body.model, attempt=body.attempt, error=run_error_to_pb(body.error)
        )
        event = pb.DebugEvent(model_attempt_failed=failed)
        return _frame(pb.StreamItem.DEBUG_FIELD_NUMBER, event.SerializeToString())

    def encode_snapshot(self, snapshot: Snapshot, *, reset: bool) -> Sequence[bytes]:
        """Returns the frames of a snapshot, each at most `MAX_PIECE_BYTES` where its parts allow."""
        pieces = [
            pb.Snapshot(
                agent=agent_to_pb(snapshot.agent),
                last_position=snapshot.last_position,
                last_change=snapshot.last_change,
                reset=reset,
            )
        ]
        size = pieces[0].ByteSize()
        for name, part in _parts(snapshot):
            part_size = part.ByteSize() + 8
            if size + part_size > MAX_PIECE_BYTES:
                pieces.append(pb.Snapshot())
                size = 0
            getattr(pieces[-1], name).append(part)
            size += part_size
        pieces[-1].last_piece = True
        number = pb.StreamItem.SNAPSHOT_FIELD_NUMBER
        return [_frame(number, piece.SerializeToString()) for piece in pieces]

    def encode_lagged(self, from_sequence: int, to_sequence: int) -> bytes:
        """Returns the frame that names what was dropped."""
        lagged = pb.Lagged(from_sequence=from_sequence, to_sequence=to_sequence)
        return _frame(pb.StreamItem.LAGGED_FIELD_NUMBER, lagged.SerializeToString())

    def encode_end(self, reason: StreamEndReason, *, reconnect: bool) -> bytes:
        """Returns the frame that ends a stream."""
        end = pb.StreamEnd(reason=STREAM_END_REASONS.to_pb(reason), reconnect=reconnect)
        return _frame(pb.StreamItem.END_FIELD_NUMBER, end.SerializeToString())

    def response(self, frames: Sequence[bytes], cursor: str, last_sequence: int) -> bytes:
        """Returns one encoded `SubscribeEventsResponse`."""
        return b"".join(
            (
                *frames,
                message_field(_CURSOR, cursor.encode()),
                number_field(_LAST_SEQUENCE, last_sequence),
            )
        )


def _frame(arm: int, encoded: bytes) -> bytes:
    return message_field(_ITEMS, message_field(arm, encoded))


def _parts(snapshot: Snapshot) -> Iterator[tuple[str, Message]]:
    for message in snapshot.growing_messages:
        yield "growing_messages", message_to_pb(message)
    for call in snapshot.calls:
        yield "calls", tool_call_to_pb(call)
    for message in snapshot.held_messages:
        yield "held_messages", message_to_pb(message)
    for run in snapshot.runs:
        yield "runs", run_to_pb(run)
