"""Records a growing message as it grows, so that a crash takes at most one flush of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from sagentry.server.agent.assembler import MessageAssembler
from sagentry.server.agent.ledger import Ledger
from sagentry.server.domain.messages import Message
from sagentry.server.domain.state import Change, MessageBegun
from sagentry.server.ports import Clock

FLUSH_BYTES = 4096
FLUSH_INTERVAL = timedelta(milliseconds=250)
"""Running text is on disk at the latest after so much or so long: what a crash can take of it."""


class Flusher:
    """The flushes of one message.

    One is under way at a time: each builds on the one before, so behind one that the disk refuses none may
    be written that lacks it. What was refused comes again with the next.

    Args:
        ledger: Records.
        clock: For the interval.
        growing: The message.
    """

    def __init__(self, ledger: Ledger, clock: Clock, growing: MessageAssembler) -> None:
        """Begins with nothing recorded."""
        self._ledger = ledger
        self._clock = clock
        self._growing = growing
        self._beginning: Message | None = None
        self._is_under_way = False
        self._is_due = False
        self._is_closed = False
        self._cancel_timer: Callable[[], None] | None = None

    def begin(self, empty: Message) -> None:
        """Records that the message begins. Returns at once, as everything here."""
        self._beginning = empty
        self._flush()

    def grown(self) -> None:
        """Sees to it that what has come is recorded in time, also when nothing more comes."""
        if self._growing.unrecorded_bytes >= FLUSH_BYTES:
            self._flush()
        elif self._growing.unrecorded_bytes:
            self._flush_later()

    def close(self) -> None:
        """Records nothing more: the whole message comes now."""
        self._is_closed = True
        self._drop_timer()

    def _flush_later(self) -> None:
        if self._cancel_timer is None:
            self._cancel_timer = self._clock.call_later(FLUSH_INTERVAL, self._flush)

    def _flush(self) -> None:
        self._drop_timer()
        self._is_due = self._is_under_way
        if self._is_under_way:
            return
        changes: list[Change] = self._growing.take_changes()
        if self._beginning is not None:
            changes.insert(0, MessageBegun(self._beginning))
        if changes:
            self._is_under_way = True
            self._ledger.record(changes).add_done_callback(self._flushed)

    def _flushed(self, recorded: asyncio.Future[None]) -> None:
        self._is_under_way = False
        if recorded.exception() is None:
            self._beginning = None
        else:
            self._growing.take_back()
        if self._is_closed:
            return
        if recorded.exception() is not None:
            # Later, not at once: the disk is full.
            self._flush_later()
        elif self._is_due:
            self._flush()
        else:
            self.grown()

    def _drop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
