"""Following an agent: reconnects by itself, and what it yields has no gap and no duplicate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.client._arrivals import Arrivals, Page, Server
from sagentry.client._errors import SagentryError, StreamEndedError, is_transient
from sagentry.client._growing import GapError
from sagentry.client._view import AgentView

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows of the transcript were read from the store: what the stream does not tell again.

    Attributes:
        rows: Those that are new or newer, by `change`.
        is_complete: Whether the transcript now has all that there was when the stream (re)began.
    """

    rows: tuple[display_pb2.DisplayMessage, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream was cut. It is taken up again by itself.

    Attributes:
        error: Why, if that is known.
        attempt: How many times in a row, from 1.
    """

    error: SagentryError | None
    attempt: int


@dataclass(frozen=True, slots=True)
class RowsDelayed:
    """The transcript cannot be read now; the stream goes on. It is tried again by itself.

    Attributes:
        error: Why.
        attempt: How many times in a row, from 1.
    """

    error: SagentryError
    attempt: int


Following = (
    pb.Snapshot
    | pb.Event
    | pb.Delta
    | pb.CaughtUp
    | pb.Lagged
    | pb.DebugEvent
    | RowsRead
    | RowsDelayed
    | Disconnected
)
"""What a follower yields."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader stands in a stream.

    Attributes:
        cursor: Of the last response that was taken in whole; empty before the first.
        sequence: Of the last durable event that was taken in, which may be of a later response; None
            when that is not known.
    """

    cursor: str = ""
    sequence: int | None = None


class Follower:
    """Iterates over what happens to an agent, for as long as it is asked.

    A cut stream is taken up where it was cut; a reader that lacks too much gets a snapshot. For one task,
    and once. Use it as a context, or `close` it: a loop that is merely left keeps its stream until the
    garbage collector finds it.

    Each item is yielded after it was taken into `view`:

    - `Snapshot`: whole. The view begins anew with it, but for the rows.
    - `Event`: each durable event once, in order.
    - `Delta`: a piece of a growing message, never one that was there before.
    - `RowsRead`: rows that the stream does not tell: at the beginning, and after a gap.
    - `CaughtUp`, `Lagged`, `DebugEvent`: as the contract says.
    - `Disconnected`, `RowsDelayed`: the server or the store is away; it is tried again.

    Iterating raises SagentryError for what trying again cannot mend, StreamEndedError among them.

    Attributes:
        view: What is known of the agent.
        place: Where the reader stands. Stored together with the view of the same moment it lets another
            follower go on from there.
    """

    def __init__(
        self, server: Server, *, view: AgentView | None = None, place: Place | None = None
    ) -> None:
        """Made by `ScopedClient.follow`."""
        self.view = view or AgentView()
        self.place = place or Place()
        self._server = server
        self._pieces: pb.Snapshot | None = None
        self._items = self._follow()

    def __aiter__(self) -> AsyncIterator[Following]:
        return self._items

    async def close(self) -> None:
        """Ends the stream. Runs go on. Safe to repeat."""
        await self._items.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _follow(self) -> AsyncGenerator[Following, None]:
        attempt = 0
        while True:
            self._pieces = None
            arrivals = Arrivals(self._server, self.place.cursor)
            problem: SagentryError | None = None
            try:
                async for arrival in arrivals:
                    attempt = 0
                    if isinstance(arrival, pb.SubscribeEventsResponse):
                        for item in self._take(arrival):
                            yield item
                    else:
                        yield self._take_rows(arrival)
                    if self._lacks_rows():
                        view = self.view
                        arrivals.want_rows(view.agent.conversation_id, view.complete_to)
            except GapError:
                # A snapshot is the way out of whatever went wrong, here or there.
                self.place = Place()
            except SagentryError as error:
                problem = error
                self._give_up_or_go_on(error)
            finally:
                await arrivals.close()
            attempt += 1
            yield Disconnected(problem, attempt)
            await asyncio.sleep(pause_before(attempt))

    def _give_up_or_go_on(self, error: SagentryError) -> None:
        if error.reason == "CURSOR_INVALID" and self.place.cursor:
            self.place = Place()
        elif isinstance(error, StreamEndedError):
            if not error.may_reconnect:
                raise error
        elif not is_transient(error):
            raise error

    def _take(self, response: pb.SubscribeEventsResponse) -> Iterator[Following]:
        end: pb.StreamEnd | None = None
        for item in response.items:
            if item.HasField("end"):
                end = item.end
                continue
            found = self._take_item(item)
            if found is not None:
                yield found
        if self.place.sequence not in {None, response.last_sequence}:
            raise GapError
        self.place = Place(response.cursor, response.last_sequence)
        if end is not None:
            raise StreamEndedError(end)

    def _lacks_rows(self) -> bool:
        # Until the snapshot is whole its conversation is unknown, and rows might still fall between the
        # list and the stream.
        has_begun = self._pieces is None and bool(self.view.agent.conversation_id)
        return has_begun and not self.view.is_complete

    def _take_item(self, item: pb.StreamItem) -> Following | None:
        match item.WhichOneof("item"):
            case "event":
                return item.event if self._take_event(item.event) else None
            case "delta":
                return item.delta if self.view.grow(item.delta) else None
            case "snapshot":
                return self._take_piece(item.snapshot)
            case "caught_up" | "lagged" | "debug" as kind:
                found: Following = getattr(item, kind)
                return found
            case _:
                return None

    def _take_event(self, event: pb.Event) -> bool:
        """Takes in an event unless that was done before."""
        known = self.place.sequence
        if known is not None and event.sequence > known + 1:
            raise GapError
        if known is not None and event.sequence <= known:
            return False
        self.view.apply(event)
        self.place = Place(self.place.cursor, event.sequence)
        return True

    def _take_piece(self, piece: pb.Snapshot) -> pb.Snapshot | None:
        """Adds a piece of a snapshot; begins with the snapshot and returns it with its last piece."""
        if self._pieces is None:
            self._pieces = pb.Snapshot()
            # Its events are numbered anew.
            self.place = Place(self.place.cursor)
        self._pieces.MergeFrom(piece)
        if not piece.last_piece:
            return None
        snapshot, self._pieces = self._pieces, None
        self.view.begin(snapshot)
        return snapshot

    def _take_rows(self, page: Page) -> RowsRead | RowsDelayed:
        if page.error is not None:
            return RowsDelayed(page.error, page.attempt)
        rows = tuple(row for row in page.rows if self.view.upsert(row))
        self.view.complete_to = max([self.view.complete_to, *(row.change for row in page.rows)])
        self.view.is_complete = page.is_last
        return RowsRead(rows, page.is_last)


def pause_before(attempt: int) -> float:
    """Returns the seconds to wait before another attempt, from 1: longer each time, and spread."""
    longest: float = min(FIRST_PAUSE_SECONDS * 2 ** min(attempt - 1, 16), LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
