"""An agent's log: a ring of encoded events that any number of readers follow.

Everything is on the event loop of the agent, and nothing here waits but readers. An entry has a ring
index that only grows; a reader is an index. What a reader gets twice is computed once: frames when they
are published, whole responses for all readers that stand at the same place.
"""

from __future__ import annotations

import asyncio
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sagentry.server.domain.events import (
    KIND_OF,
    DebugBody,
    Delta,
    Event,
    EventBody,
    EventKind,
    LagPolicy,
    Snapshot,
    StreamEndReason,
)
from sagentry.server.events.cursor import (
    NO_LOG,
    Cursor,
    fingerprint,
    invalid_cursor,
    parse_cursor,
)
from sagentry.server.events.subscription import USUAL, Start, Subscription, Wanted
from sagentry.server.ports import Clock
from sagentry.server.stream_ports import EventEncoder

MAX_RESPONSE_BYTES = 64 * 1024
"""Responses are joined up to this size; a larger frame travels alone."""

ENTRY_BYTES = 200
"""What an entry takes in memory beside its frame."""

BOOKMARK_INTERVAL = timedelta(seconds=15)

_DEAD_ENTRIES_KEPT = 512


@dataclass(frozen=True, slots=True)
class _Entry:
    """One frame and what readers filter by.

    Attributes:
        frame: The encoded item.
        kind: Kind of the event; None passes every filter.
        sequence: The last durable sequence up to this entry.
        message_id: The growing message of a delta; empty otherwise.
        partial: Whether more frames of the same snapshot follow.
        is_debug: Whether only readers get it that ask for it.
    """

    frame: bytes
    kind: EventKind | None
    sequence: int
    message_id: str = ""
    partial: bool = False
    is_debug: bool = False

    def passes(self, wanted: Wanted) -> bool:
        """Whether a reader gets it."""
        if self.is_debug:
            return wanted.debug
        return not wanted.kinds or self.kind is None or self.kind in wanted.kinds


_DEAD = _Entry(b"", None, 0)


@dataclass(slots=True)
class Batch:
    """What a reader takes in one go.

    Attributes:
        frames: The frames; none when nothing passes the filter.
        index: Where the reader stands after it.
        sequence: The last durable sequence considered.
        partial: Whether the last frame is a piece of a snapshot that goes on.
        response: The encoded response, once a reader has asked for it.
    """

    frames: list[bytes]
    index: int
    sequence: int
    partial: bool = False
    response: bytes | None = None


class EventLog:
    """The log of one agent, over all of its starts as long as somebody keeps it.

    Attributes:
        conversation_id: The agent's conversation; the owner sets it when it becomes known.
        readers: How many subscriptions are open.
    """

    def __init__(
        self,
        agent_id: str,
        conversation_id: str,
        *,
        encoder: EventEncoder,
        clock: Clock,
        max_bytes: int,
        bookmark_interval: timedelta = BOOKMARK_INTERVAL,
    ) -> None:
        self.conversation_id = conversation_id
        self.readers = 0
        self.encoder = encoder
        self._agent_id = agent_id
        self._agent = fingerprint(agent_id)
        self._clock = clock
        self._max_bytes = max_bytes
        self._bookmark_seconds = bookmark_interval.total_seconds()
        self._log_id = uuid.uuid4().hex
        self._sequence = 0
        self._head = 0
        self._life_start = 0
        self._trimmed = 0
        self._bytes = 0
        # Parallel, so that bisect compares plain numbers; the first `_dead` of them are trimmed.
        self._indexes: list[int] = []
        self._entries: list[_Entry] = []
        self._dead = 0
        self._first_delta: dict[str, int] = {}
        self._batches: dict[int, Batch] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._end: bytes | None = None

    @property
    def sequence(self) -> int:
        """The last durable sequence; 0 for none."""
        return self._sequence

    @property
    def head(self) -> int:
        """Index of the newest entry ever."""
        return self._head

    @property
    def size_bytes(self) -> int:
        """What the ring holds."""
        return self._bytes

    @property
    def end_frame(self) -> bytes | None:
        """The frame that ends all streams; None while they go on."""
        return self._end

    def begin(self, snapshot: Callable[[], Snapshot]) -> None:
        """Begins the log anew: the agent starts. To be called before its first event.

        Sequences begin at 1 under a new log_id. Readers that followed the agent before get the
        snapshot as it is now, and then everything from the first event on.
        """
        for message_id in tuple(self._first_delta):
            self.finish_message(message_id)
        self._log_id = uuid.uuid4().hex
        self._sequence = 0
        self._life_start = self._head
        self._batches.clear()
        if self.readers:
            frames = self.encoder.encode_snapshot(snapshot(), reset=True)
            last = len(frames) - 1
            for number, frame in enumerate(frames):
                self._append(_Entry(frame, None, 0, partial=number < last))

    def publish(self, body: EventBody, *, run_id: str, owner_epoch: int) -> int:
        """Adds a durable event and returns its sequence."""
        self._sequence += 1
        event = Event(
            sequence=self._sequence,
            agent_id=self._agent_id,
            conversation_id=self.conversation_id,
            run_id=run_id,
            owner_epoch=owner_epoch,
            time=self._clock.now(),
            body=body,
        )
        frame = self.encoder.encode_event(event)
        self._append(_Entry(frame, KIND_OF[type(body)], self._sequence))
        return self._sequence

    def publish_delta(self, delta: Delta) -> None:
        """Adds a delta of a growing message."""
        frame = self.encoder.encode_delta(delta)
        self._first_delta.setdefault(delta.message_id, self._head + 1)
        self._append(_Entry(frame, EventKind.DELTA, self._sequence, message_id=delta.message_id))

    def publish_debug(self, body: DebugBody) -> None:
        """Adds what only readers get that ask for it."""
        frame = self.encoder.encode_debug(body)
        self._append(_Entry(frame, None, self._sequence, is_debug=True))

    def finish_message(self, message_id: str) -> None:
        """Drops the deltas of a message that is whole: its event has all of them."""
        first = self._first_delta.pop(message_id, None)
        if first is None:
            return
        start = bisect_left(self._indexes, first, lo=self._dead)
        indexes, entries = self._indexes[start:], self._entries[start:]
        del self._indexes[start:], self._entries[start:]
        for index, entry in zip(indexes, entries, strict=True):
            if entry.message_id == message_id:
                self._bytes -= len(entry.frame) + ENTRY_BYTES
            else:
                self._indexes.append(index)
                self._entries.append(entry)
        self._batches.clear()

    def end(self, reason: StreamEndReason, *, reconnect: bool) -> None:
        """Ends all streams after what they have not read yet. The log is used no more."""
        self._end = self.encoder.encode_end(reason, reconnect=reconnect)
        self._wake()

    def subscribe(
        self,
        cursor: str | None,
        kinds: Iterable[EventKind] = (),
        *,
        debug: bool = False,
        policy: LagPolicy = LagPolicy.CONFLATE,
        snapshot: Callable[[], Snapshot],
    ) -> Subscription:
        """Opens a stream.

        Args:
            cursor: Where to go on; None begins with a snapshot.
            kinds: Only events of these kinds; none means all.
            debug: Whether debug events are wanted as well.
            policy: What happens when the reader falls behind.
            snapshot: Returns the agent as it is at the moment of the call.

        Raises:
            InvalidInputError: CURSOR_INVALID.
        """
        start = self._place(cursor)
        self.readers += 1
        return Subscription(
            self,
            start=start,
            wanted=Wanted(frozenset(kinds), debug),
            policy=policy,
            snapshot=snapshot,
        )

    def _place(self, text: str | None) -> Start:
        if text is None:
            return Start(index=None, sequence=0, reset=False)
        cursor = parse_cursor(text, self._agent)
        if cursor.log_id != self._log_id:
            return Start(index=None, sequence=0, reset=True)
        if cursor.index > self._head or cursor.sequence > self._sequence:
            raise invalid_cursor("is ahead of the log")
        if self.is_trimmed(cursor.index):
            return Start(index=None, sequence=0, reset=True)
        return Start(index=cursor.index, sequence=cursor.sequence, reset=False)

    def is_trimmed(self, index: int) -> bool:
        """Says whether an entry after that index was dropped for want of room."""
        return index < self._trimmed

    def dropped_after(self, index: int, sequence: int) -> tuple[int, int]:
        """Returns the first and last sequence that a reader misses who goes on at the head."""
        first = sequence + 1 if index >= self._life_start else 1
        return (first, self._sequence) if first <= self._sequence else (0, 0)

    def batch(self, after: int, wanted: Wanted) -> Batch:
        """Returns what is new after an index, as much as goes into one response."""
        if wanted != USUAL:
            return self._collect(after, wanted)
        batch = self._batches.get(after)
        if batch is None:
            batch = self._batches[after] = self._collect(after, wanted)
        return batch

    def _collect(self, after: int, wanted: Wanted) -> Batch:
        frames: list[bytes] = []
        size = 0
        index, sequence = after, self._sequence
        start = bisect_right(self._indexes, after, lo=self._dead)
        for position in range(start, len(self._indexes)):
            entry = self._entries[position]
            if entry.passes(wanted):
                size += len(entry.frame)
                if frames and size > MAX_RESPONSE_BYTES:
                    return Batch(frames, index, sequence)
                frames.append(entry.frame)
            index, sequence = self._indexes[position], entry.sequence
            if entry.partial:
                return Batch(frames, index, sequence, partial=True)
        # Entries that left the ring count as read.
        return Batch(frames, self._head, self._sequence)

    def respond_batch(self, batch: Batch) -> bytes:
        """Returns the response of a batch, the same object for every reader of it."""
        if batch.response is None:
            batch.response = self.respond(
                batch.frames, batch.index, batch.sequence, whole=not batch.partial
            )
        return batch.response

    def respond(
        self, frames: Sequence[bytes], index: int, sequence: int, *, whole: bool = True
    ) -> bytes:
        """Encodes a response after which the reader stands at an index.

        Args:
            frames: Its items.
            index: Where the reader stands after it.
            sequence: The last durable sequence considered.
            whole: Whether the reader can go on from here; otherwise its cursor leads to a snapshot.
        """
        is_of_this_life = whole and index >= self._life_start
        log_id = self._log_id if is_of_this_life else NO_LOG
        cursor = Cursor(log_id, index, sequence).text(self._agent)
        return self.encoder.response(frames, cursor, sequence)

    async def wait(self, index: int) -> bool:
        """Waits for something after an index; False when nothing came for a bookmark's interval."""
        if self._head > index or self._end is not None:
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(self._bookmark_seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def _append(self, entry: _Entry) -> None:
        self._head += 1
        self._indexes.append(self._head)
        self._entries.append(entry)
        self._bytes += len(entry.frame) + ENTRY_BYTES
        self._trim()
        self._batches.clear()
        self._wake()

    def _trim(self) -> None:
        while self._bytes > self._max_bytes:
            entry = self._entries[self._dead]
            self._trimmed = self._indexes[self._dead]
            self._bytes -= len(entry.frame) + ENTRY_BYTES
            self._entries[self._dead] = _DEAD
            self._dead += 1
        if self._dead > _DEAD_ENTRIES_KEPT and self._dead * 2 > len(self._entries):
            del self._indexes[: self._dead], self._entries[: self._dead]
            self._dead = 0

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
