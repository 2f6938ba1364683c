"""Logs, snapshots and readers of events, as tests use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain.events import AgentView, Delta, Snapshot, TextDelta, TitleChanged
from sagentry.server.domain.messages import Message, Role, TextPart
from sagentry.server.domain.runs import AgentStatus
from sagentry.server.events.log import EventLog
from sagentry.server.rpc.event_encoder import ProtoEventEncoder
from sagentry.server.stream_ports import EventSource

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return TIME

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, duration: timedelta) -> None:  # noqa: ARG002 - the port's
        await asyncio.get_running_loop().create_future()

    def call_later(
        self,
        delay: timedelta,  # noqa: ARG002 - the port's
        callback: Callable[[], None],  # noqa: ARG002 - the port's
    ) -> Callable[[], None]:
        return lambda: None


def new_log(*, max_bytes: int = 1_000_000, **more: Any) -> EventLog:
    return EventLog(
        "order-17",
        "order-17",
        encoder=ProtoEventEncoder(),
        clock=FixedClock(),
        max_bytes=max_bytes,
        **more,
    )


def view(**fields: Any) -> AgentView:
    facts: dict[str, Any] = {
        "agent_id": "order-17",
        "conversation_id": "order-17",
        "profile": "default",
        "status": AgentStatus.IDLE,
        "live": True,
    }
    return AgentView(**{**facts, **fields})


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot(view(), **fields)


def message(text: str = "hi", message_id: str = "m-1") -> Message:
    return Message(message_id, Role.ASSISTANT, (TextPart(text),), TIME)


def publish(log: EventLog, title: str = "t") -> int:
    return log.publish(TitleChanged(title), run_id="", owner_epoch=1)


def grow(log: EventLog, offset: int, text: str, message_id: str = "m-1") -> None:
    log.publish_delta(Delta(message_id, 0, "r-1", TextDelta(offset, text)))


@dataclass
class Read:
    """What a reader has got."""

    responses: list[pb.SubscribeEventsResponse] = field(default_factory=list)

    @property
    def items(self) -> list[pb.StreamItem]:
        return [item for response in self.responses for item in response.items]

    @property
    def kinds(self) -> list[str]:
        return [item.WhichOneof("item") or "" for item in self.items]

    @property
    def sequences(self) -> list[int]:
        return [item.event.sequence for item in self.items if item.HasField("event")]

    @property
    def cursor(self) -> str:
        return self.responses[-1].cursor


async def read_one(source: EventSource) -> pb.SubscribeEventsResponse:
    encoded = await source.next_batch()
    assert encoded is not None
    return pb.SubscribeEventsResponse.FromString(encoded)


async def read_available(source: EventSource) -> Read:
    """Reads until the reader would have to wait, or the stream ends."""
    read = Read()
    while True:
        waiting = asyncio.ensure_future(source.next_batch())  # noqa: TID251 - stepped by hand
        # A reader that has something to say does it in its first step.
        await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
            return read
        encoded = waiting.result()
        if encoded is None:
            return read
        read.responses.append(pb.SubscribeEventsResponse.FromString(encoded))
