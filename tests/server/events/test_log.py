from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain.events import (
    EventKind,
    LagPolicy,
    MessageCompleted,
    ModelAttemptFailed,
    StreamEndReason,
)
from sagentry.server.domain.runs import RunError
from sagentry.server.errors import InvalidInputError
from sagentry.server.events.log import ENTRY_BYTES, MAX_RESPONSE_BYTES
from tests.support.events import (
    Read,
    grow,
    message,
    new_log,
    publish,
    read_available,
    read_one,
    snapshot,
)

pytestmark = pytest.mark.anyio


def texts(read: Read) -> list[str]:
    return [item.delta.text.text for item in read.items if item.HasField("delta")]


async def test_a_reader_gets_a_snapshot_then_caught_up_then_what_happens():
    log = new_log()
    publish(log)
    reader = log.subscribe(None, snapshot=snapshot)

    first = await read_available(reader)
    publish(log)
    second = await read_available(reader)

    assert first.kinds == ["snapshot", "caught_up"]
    assert not first.items[0].snapshot.reset
    assert second.sequences == [2]


async def test_sequences_have_no_gaps_and_deltas_have_none():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    sequences = [publish(log), publish(log)]
    grow(log, 0, "a")
    sequences.append(publish(log))

    read = await read_available(reader)

    assert read.sequences == sequences == [1, 2, 3]
    assert read.responses[-1].last_sequence == 3


async def test_what_happened_together_is_one_response():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    for _ in range(50):
        publish(log)

    read = await read_available(reader)

    assert len(read.responses) == 1


async def test_a_response_is_bounded_and_a_large_frame_travels_alone():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    publish(log, "x" * 40_000)
    publish(log, "x" * 40_000)
    publish(log, "x" * 100_000)
    publish(log)

    read = await read_available(reader)

    assert [len(response.items) for response in read.responses] == [1, 1, 1, 1]
    assert read.responses[0].ByteSize() < MAX_RESPONSE_BYTES


async def test_readers_at_one_place_share_one_response():
    log = new_log()
    readers = [log.subscribe(None, snapshot=snapshot) for _ in range(3)]
    for reader in readers:
        await read_available(reader)
    publish(log)

    responses = [await reader.next_batch() for reader in readers]

    assert len({id(response) for response in responses}) == 1


async def test_a_waiting_reader_wakes_when_something_happens():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(read_one(reader))
        await asyncio.sleep(0)
        assert not waiting.done()
        publish(log)

    assert waiting.result().last_sequence == 1


async def test_a_cancelled_wait_loses_nothing():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(reader.next_batch())
        await asyncio.sleep(0)
        publish(log)
        waiting.cancel()

    read = await read_available(reader)

    assert read.sequences == [1]


async def test_silence_is_filled_with_bookmarks():
    log = new_log(bookmark_interval=timedelta(milliseconds=1))
    publish(log)
    reader = log.subscribe(None, snapshot=snapshot)
    await read_one(reader)

    response = await read_one(reader)

    assert [item.WhichOneof("item") for item in response.items] == ["bookmark"]
    assert response.last_sequence == 1


async def test_deltas_of_a_finished_message_leave_the_ring_at_once():
    log = new_log()
    before = log.size_bytes
    grow(log, 0, "a")
    grow(log, 0, "other", "m-2")
    grow(log, 1, "b")
    reader = log.subscribe(None, snapshot=snapshot)
    cursor = (await read_one(log.subscribe(None, snapshot=snapshot))).cursor
    log.finish_message("m-1")
    log.finish_message("m-2")

    assert log.size_bytes == before
    assert (await read_available(reader)).kinds == ["snapshot", "caught_up"]
    assert (await read_available(log.subscribe(cursor, snapshot=snapshot))).kinds == ["caught_up"]


async def test_a_reader_in_the_middle_of_a_message_gets_it_whole_when_it_is_finished():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    grow(log, 0, "a")
    first = await read_available(reader)
    grow(log, 1, "b")
    log.finish_message("m-1")
    log.publish(MessageCompleted(message("ab")), run_id="", owner_epoch=1)

    second = await read_available(reader)

    assert texts(first) == ["a"]
    assert second.kinds == ["event"]
    assert second.items[0].event.message_completed.message.parts[0].text.text == "ab"


async def test_other_messages_keep_their_deltas_in_order():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    grow(log, 0, "a", "m-1")
    grow(log, 0, "x", "m-2")
    publish(log)
    grow(log, 1, "y", "m-2")
    log.finish_message("m-1")

    read = await read_available(reader)

    assert read.kinds == ["delta", "event", "delta"]
    assert texts(read) == ["x", "y"]


async def test_a_filter_hides_events_and_still_says_how_far_it_has_looked():
    log = new_log()
    reader = log.subscribe(None, {EventKind.MESSAGE}, snapshot=snapshot)
    await read_available(reader)
    publish(log)
    grow(log, 0, "a")
    log.publish(MessageCompleted(message()), run_id="", owner_epoch=1)
    publish(log)

    read = await read_available(reader)

    assert read.sequences == [2]
    assert read.responses[-1].last_sequence == 3


async def test_a_filtered_reader_hears_nothing_of_what_it_does_not_want():
    log = new_log()
    reader = log.subscribe(None, {EventKind.MESSAGE}, snapshot=snapshot)
    await read_available(reader)
    publish(log)

    read = await read_available(reader)

    assert read.responses == []


async def test_debug_events_reach_those_who_asked_and_nobody_else():
    log = new_log()
    usual = log.subscribe(None, snapshot=snapshot)
    filtered = log.subscribe(None, {EventKind.SUMMARY}, snapshot=snapshot)
    curious = log.subscribe(None, {EventKind.SUMMARY}, debug=True, snapshot=snapshot)
    for reader in (usual, filtered, curious):
        await read_available(reader)
    log.publish_debug(ModelAttemptFailed("m", 1, RunError("MODEL_OVERLOADED", "busy")))
    publish(log)

    assert (await read_available(usual)).kinds == ["event"]
    assert (await read_available(filtered)).kinds == ["event"]
    assert (await read_available(curious)).kinds == ["debug", "event"]


async def test_the_ring_is_bounded_in_bytes():
    log = new_log(max_bytes=20_000)

    sizes = []
    for number in range(2000):
        publish(log, "x" * (number % 300))
        sizes.append(log.size_bytes)

    assert max(sizes) <= 20_000
    assert log.size_bytes > 20_000 - 300 - ENTRY_BYTES - 100


async def test_a_frame_that_is_larger_than_the_ring_is_not_kept():
    log = new_log(max_bytes=1000)

    publish(log, "x" * 5000)

    assert log.size_bytes == 0


async def test_a_reader_that_falls_behind_gets_lagged_and_a_snapshot():
    log = new_log(max_bytes=2000)
    reader = log.subscribe(None, snapshot=snapshot)
    publish(log)
    await read_available(reader)
    for _ in range(50):
        publish(log)

    read = await read_available(reader)
    publish(log)
    after = await read_available(reader)

    assert read.kinds == ["lagged", "snapshot"]
    assert (read.items[0].lagged.from_sequence, read.items[0].lagged.to_sequence) == (2, 51)
    assert read.items[1].snapshot.reset
    assert after.sequences == [52]


async def test_a_reader_that_missed_only_deltas_missed_no_sequence():
    log = new_log(max_bytes=2000)
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    for offset in range(50):
        grow(log, offset, "x")

    read = await read_available(reader)

    assert read.items[0].lagged == pb.Lagged()


async def test_a_reader_that_falls_behind_can_ask_to_be_disconnected():
    log = new_log(max_bytes=2000)
    reader = log.subscribe(None, policy=LagPolicy.DISCONNECT, snapshot=snapshot)
    await read_available(reader)
    for _ in range(50):
        publish(log)

    read = await read_available(reader)

    assert read.kinds == ["end"]
    assert read.items[0].end == pb.StreamEnd(reason=pb.STREAM_END_REASON_LAGGED, reconnect=True)
    assert await reader.next_batch() is None
    again = await read_available(log.subscribe(read.cursor, snapshot=snapshot))
    assert again.kinds == ["snapshot", "caught_up"]
    assert again.items[0].snapshot.reset


async def test_streams_end_with_a_reason_after_what_there_is_to_read():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    publish(log)
    log.end(StreamEndReason.DRAINING, reconnect=True)

    read = await read_available(reader)

    assert read.kinds == ["event", "end"]
    assert await reader.next_batch() is None


async def test_an_end_wakes_those_who_wait():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(read_one(reader))
        await asyncio.sleep(0)
        log.end(StreamEndReason.DELETED, reconnect=False)

    assert waiting.result().items[0].end.reason == pb.STREAM_END_REASON_DELETED


async def test_a_closed_reader_is_forgotten():
    log = new_log()
    reader = log.subscribe(None, snapshot=snapshot)
    assert log.readers == 1

    reader.close()
    reader.close()

    assert log.readers == 0
    assert await reader.next_batch() is None


@pytest.mark.parametrize("large", [False, True])
async def test_a_large_snapshot_comes_in_pieces_and_only_the_last_can_be_resumed(large):
    log = new_log()
    held = [message("x" * 1_000_000, f"m-{number}") for number in range(5 if large else 1)]
    now = snapshot(held_messages=tuple(held))
    reader = log.subscribe(None, snapshot=lambda: now)

    read = await read_available(reader)

    pieces = [item.snapshot for item in read.items if item.HasField("snapshot")]
    assert sum(len(piece.held_messages) for piece in pieces) == len(held)
    assert [piece.last_piece for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(response.ByteSize() for response in read.responses) <= 3 * 1024 * 1024
    resumed = [
        (await read_available(log.subscribe(response.cursor, snapshot=snapshot))).kinds
        for response in read.responses
    ]
    assert resumed == [["snapshot", "caught_up"]] * (len(pieces) - 1) + [["caught_up"]]


async def test_a_new_start_gives_readers_a_snapshot_and_every_event_of_it():
    log = new_log()
    log.begin(snapshot)
    publish(log)
    reader = log.subscribe(None, snapshot=snapshot)
    cursor = (await read_one(reader)).cursor
    publish(log)
    log.begin(snapshot)
    publish(log)

    read = await read_available(reader)

    assert read.kinds == ["event", "snapshot", "event"]
    assert read.items[1].snapshot.reset
    assert read.sequences == [2, 1]
    assert read.responses[-1].last_sequence == 1
    again = await read_available(log.subscribe(cursor, snapshot=snapshot))
    assert again.kinds == ["snapshot", "caught_up"]
    assert again.items[0].snapshot.reset
    resumed = await read_available(log.subscribe(read.cursor, snapshot=snapshot))
    assert resumed.kinds == ["caught_up"]


async def test_what_grew_before_a_new_start_is_no_longer_kept():
    log = new_log()
    grow(log, 0, "a")
    assert log.size_bytes > 0

    log.begin(snapshot)

    assert log.size_bytes == 0


async def test_a_new_start_of_a_large_agent_comes_in_pieces_too():
    log = new_log(max_bytes=10_000_000)
    reader = log.subscribe(None, snapshot=snapshot)
    await read_available(reader)
    held = tuple(message("x" * 1_000_000, f"m-{number}") for number in range(5))
    log.begin(lambda: snapshot(held_messages=held))
    publish(log)

    read = await read_available(reader)

    assert read.kinds == ["snapshot"] * 2 + ["event"]
    again = await read_available(log.subscribe(read.responses[0].cursor, snapshot=snapshot))
    assert again.kinds == ["snapshot", "caught_up"]


async def test_a_new_start_without_readers_encodes_no_snapshot():
    log = new_log()

    def refuse():
        raise AssertionError

    log.begin(refuse)

    assert log.head == 0


@pytest.mark.parametrize("cursor", ["", "x", "0123456789abcdef." + "0" * 32 + ".1", "é" * 300])
async def test_a_cursor_that_is_none_is_refused(cursor):
    log = new_log()

    with pytest.raises(InvalidInputError) as caught:
        log.subscribe(cursor, snapshot=snapshot)

    assert (caught.value.reason, caught.value.field) == ("CURSOR_INVALID", "from_cursor")
    assert log.readers == 0


async def test_a_cursor_of_another_agent_or_ahead_of_the_log_is_refused():
    log = new_log()
    publish(log)
    cursor = (await read_one(log.subscribe(None, snapshot=snapshot))).cursor
    agent, log_id, _index, _sequence = cursor.split(".")

    for wrong in (f"{'0' * 16}.{log_id}.1.1", f"{agent}.{log_id}.2.1", f"{agent}.{log_id}.1.2"):
        with pytest.raises(InvalidInputError):
            log.subscribe(wrong, snapshot=snapshot)


async def test_cursors_are_short():
    log = new_log()
    publish(log)

    assert len((await read_one(log.subscribe(None, snapshot=snapshot))).cursor) <= 256
