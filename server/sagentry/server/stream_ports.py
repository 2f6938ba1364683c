"""What the event stream needs of the wire, and what it gives to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from sagentry.server.domain.events import (
    DebugBody,
    Delta,
    Event,
    EventBody,
    EventKind,
    LagPolicy,
    Snapshot,
    StreamEndReason,
)
from sagentry.server.domain.watching import WatchBatch


class EventEncoder(Protocol):
    """Makes the bytes of the stream. All methods are pure.

    A frame is one item of a response, encoded with tag and length: frames joined are the items of a
    response, so an item is encoded once for all readers.
    """

    caught_up: bytes
    """Frame that says that the reader has seen all there was."""

    bookmark: bytes
    """Frame that says that nothing happened."""

    def encode_event(self, event: Event) -> bytes:
        """Returns the frame of a durable event."""

    def encode_delta(self, delta: Delta) -> bytes:
        """Returns the frame of a delta."""

    def encode_debug(self, body: DebugBody) -> bytes:
        """Returns the frame of a debug event."""

    def encode_snapshot(self, snapshot: Snapshot, *, reset: bool) -> Sequence[bytes]:
        """Returns the frames of a snapshot: 1 or more, each for a response of its own, the last marked.

        Args:
            snapshot: The agent as it is.
            reset: Whether the reader must forget what it has of growing messages.
        """

    def encode_lagged(self, from_sequence: int, to_sequence: int) -> bytes:
        """Returns the frame that names what was dropped; zeros when no durable event was."""

    def encode_end(self, reason: StreamEndReason, *, reconnect: bool) -> bytes:
        """Returns the frame that ends a stream."""

    def response(self, frames: Sequence[bytes], cursor: str, last_sequence: int) -> bytes:
        """Returns one encoded response of the stream."""


class AgentLog(Protocol):
    """The log of one agent. All methods return at once, whatever the readers do."""

    conversation_id: str
    """The agent's conversation."""

    @property
    def readers(self) -> int:
        """How many streams follow it."""

    def begin(self, snapshot: Callable[[], Snapshot]) -> None:
        """Begins the log anew: the agent starts. Readers get the snapshot first."""

    def publish(self, body: EventBody, *, run_id: str, owner_epoch: int) -> int:
        """Adds a durable event and returns its sequence."""

    def publish_delta(self, delta: Delta) -> None:
        """Adds a delta of a growing message."""

    def publish_debug(self, body: DebugBody) -> None:
        """Adds what only readers get that ask for it."""

    def finish_message(self, message_id: str) -> None:
        """Drops the deltas of a message that is whole."""

    def end(self, reason: StreamEndReason, *, reconnect: bool) -> None:
        """Ends all streams after what they have not read yet. The log is used no more."""

    def subscribe(
        self,
        cursor: str | None,
        kinds: Iterable[EventKind] = (),
        *,
        debug: bool = False,
        policy: LagPolicy = LagPolicy.CONFLATE,
        snapshot: Callable[[], Snapshot],
    ) -> EventSource:
        """Opens a stream. Raises InvalidInputError CURSOR_INVALID."""


class WatchSource(Protocol):
    """One watcher of a scope's live agents. For one task."""

    async def next_batch(self) -> WatchBatch | None:
        """Returns what is new; None after the end of the stream. Waits while nothing is new."""

    def close(self) -> None:
        """Ends the watcher's bookkeeping. Safe to repeat."""


class EventSource(Protocol):
    """One reader's stream, ready for the wire. For one task."""

    async def next_batch(self) -> bytes | None:
        """Returns the next encoded response, all that is new in it; None after the end of the stream.

        Waits while nothing is new. Cancelling it loses nothing.
        """

    def close(self) -> None:
        """Ends the stream's bookkeeping: viewers, limits. Safe to repeat."""
