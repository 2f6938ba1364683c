"""What an agent needs of its event log. Implemented in `events/`."""

from __future__ import annotations

from typing import Protocol

from sagentry.server.domain.events import Delta, EventBody


class AgentLog(Protocol):
    """Tells readers what happens. All methods return at once, whatever the readers do."""

    def publish(self, body: EventBody, *, run_id: str, owner_epoch: int) -> int:
        """Adds a durable event and returns its sequence."""

    def publish_delta(self, delta: Delta) -> None:
        """Adds a delta."""

    def finish_message(self, message_id: str) -> None:
        """Drops the deltas of a message that is whole."""
