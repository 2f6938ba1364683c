"""One reader of an agent's log: an index into its ring, and nothing that grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagentry.server.domain.events import EventKind, LagPolicy, Snapshot, StreamEndReason

if TYPE_CHECKING:
    from sagentry.server.events.log import EventLog


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader begins.

    Attributes:
        index: The entry after which it goes on; None begins with a snapshot.
        sequence: The last durable sequence that it has.
        reset: Whether the snapshot tells it to forget what it has.
    """

    index: int | None
    sequence: int
    reset: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asked for.

    Attributes:
        kinds: Only events of these kinds; none means all.
        debug: Debug events as well.
    """

    kinds: frozenset[EventKind] = frozenset()
    debug: bool = False


USUAL = Wanted()
"""What most readers want: their batches are shared."""


class Subscription:
    """A stream of encoded responses. For one task; see the port `EventSource`."""

    def __init__(
        self,
        log: EventLog,
        *,
        start: Start,
        wanted: Wanted,
        policy: LagPolicy,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._policy = policy
        self._snapshot = snapshot
        self._is_open = True
        self._has_ended = False
        self._pieces: list[bytes] = []
        self._sequence = start.sequence
        self._caught_up_at: int | None = log.head
        if start.index is None:
            self._index = log.head
            self._begin_snapshot(reset=start.reset)
        else:
            self._index = start.index

    async def next_batch(self) -> bytes | None:
        """Returns the next encoded response; None after the end of the stream."""
        while self._is_open and not self._has_ended:
            response = self._take()
            if response is not None:
                return response
            if not await self._log.wait(self._index):
                return self._respond([self._log.encoder.bookmark])
        return None

    def close(self) -> None:
        """Leaves the log."""
        if self._is_open:
            self._is_open = False
            self._log.readers -= 1

    def _take(self) -> bytes | None:
        if self._pieces:
            return self._next_piece()
        if self._log.is_trimmed(self._index):
            return self._fall_behind()
        batch = self._log.batch(self._index, self._wanted)
        self._index, self._sequence = batch.index, batch.sequence
        if self._catches_up() and not batch.partial:
            return self._respond([*batch.frames, self._log.encoder.caught_up])
        if batch.frames:
            return self._log.respond_batch(batch)
        if self._log.end_frame is not None:
            self._has_ended = True
            return self._respond([self._log.end_frame])
        return None

    def _catches_up(self) -> bool:
        reached = self._caught_up_at is not None and self._index >= self._caught_up_at
        if reached:
            self._caught_up_at = None
        return reached

    def _begin_snapshot(self, *, reset: bool) -> None:
        self._index, self._sequence = self._log.head, self._log.sequence
        self._pieces = list(self._log.encoder.encode_snapshot(self._snapshot(), reset=reset))

    def _next_piece(self, before: Sequence[bytes] = ()) -> bytes:
        frames = [*before, self._pieces.pop(0)]
        if self._pieces:
            return self._respond(frames, whole=False)
        if self._catches_up():
            frames.append(self._log.encoder.caught_up)
        return self._respond(frames)

    def _fall_behind(self) -> bytes:
        encoder = self._log.encoder
        if self._policy is LagPolicy.DISCONNECT:
            self._has_ended = True
            return self._respond([encoder.encode_end(StreamEndReason.LAGGED, reconnect=True)])
        lagged = encoder.encode_lagged(*self._log.dropped_after(self._index, self._sequence))
        self._begin_snapshot(reset=True)
        return self._next_piece([lagged])

    def _respond(self, frames: Sequence[bytes], *, whole: bool = True) -> bytes:
        return self._log.respond(frames, self._index, self._sequence, whole=whole)
