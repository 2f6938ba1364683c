from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagentry.server.domain.events import Snapshot
from tests.support.events import Read, grow, message, new_log, publish, read_available, snapshot

pytestmark = pytest.mark.anyio

steps = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.integers(0, 200)),
        st.tuples(st.just("delta"), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.just("read"), st.just(0)),
    ),
    max_size=60,
)


class Writer:
    """Publishes steps, and keeps what growing messages hold as the agent would."""

    def __init__(self, max_bytes: int) -> None:
        self.log = new_log(max_bytes=max_bytes)
        self.growing: dict[str, int] = {}
        self._lives = {0: 0, 1: 0, 2: 0}

    def step(self, kind: str, number: int) -> None:
        if kind == "event":
            publish(self.log, "x" * number)
        elif kind == "delta":
            name = f"m-{number}-{self._lives[number]}"
            length = self.growing.get(name, 0)
            grow(self.log, length, "é", name)
            self.growing[name] = length + 2
        elif kind == "finish":
            name = f"m-{number}-{self._lives[number]}"
            self.log.finish_message(name)
            self.growing.pop(name, None)
            self._lives[number] += 1

    def snapshot(self) -> Snapshot:
        return snapshot(
            growing_messages=tuple(
                message("é" * (length // 2), name) for name, length in self.growing.items()
            )
        )


@given(steps)
async def test_resuming_at_every_cursor_gives_no_gap_and_no_duplicate(written):
    writer = Writer(max_bytes=1_000_000)
    reader = writer.log.subscribe(None, snapshot=snapshot)
    got = Read()
    for kind, number in written:
        if kind == "read":
            got.responses.extend((await read_available(reader)).responses)
        writer.step(kind, number)
    got.responses.extend((await read_available(reader)).responses)

    for index, response in enumerate(got.responses):
        resumed = await read_available(writer.log.subscribe(response.cursor, snapshot=snapshot))
        later = Read(got.responses[index + 1 :])
        assert resumed.sequences == later.sequences
        assert resumed.kinds.count("caught_up") == 1
    assert got.sequences == list(range(1, writer.log.sequence + 1))


@given(steps, st.integers(500, 5000))
async def test_a_slow_reader_is_told_of_everything_that_it_misses(written, max_bytes):
    writer = Writer(max_bytes)
    reader = writer.log.subscribe(None, snapshot=snapshot)
    got = Read()
    for kind, number in written:
        if kind == "read":
            got.responses.extend((await read_available(reader)).responses)
        writer.step(kind, number)
        assert writer.log.size_bytes <= max_bytes
    got.responses.extend((await read_available(reader)).responses)

    accounted = 0
    for item in got.items:
        if item.HasField("event"):
            accounted += 1
            assert item.event.sequence == accounted
        elif item.HasField("lagged") and item.lagged.to_sequence:
            assert item.lagged.from_sequence == accounted + 1
            accounted = item.lagged.to_sequence
    assert accounted == writer.log.sequence


@given(steps, st.integers(500, 5000))
async def test_the_offset_of_a_delta_is_what_the_reader_has(written, max_bytes):
    writer = Writer(max_bytes)
    reader = writer.log.subscribe(None, snapshot=writer.snapshot)
    got = Read()
    for kind, number in written:
        if kind == "read":
            got.responses.extend((await read_available(reader)).responses)
        writer.step(kind, number)
    got.responses.extend((await read_available(reader)).responses)

    lengths: dict[str, int] = {}
    for item in got.items:
        if item.HasField("snapshot"):
            lengths = {
                one.message_id: len(one.parts[0].text.text.encode())
                for one in item.snapshot.growing_messages
            }
        elif item.HasField("delta"):
            assert item.delta.text.offset == lengths.get(item.delta.message_id, 0)
            lengths[item.delta.message_id] = item.delta.text.offset + 2
