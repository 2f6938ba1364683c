"""What an agent's stores make of its writes, told to readers and to who waits for rows."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sagentry.server.agent.ledger import QueuedWrite
from sagentry.server.domain.display import ConversationCounters, DisplayMessage
from sagentry.server.domain.events import (
    DisplayMessageSaved,
    DisplayMessageUpdated,
    EventBody,
    PluginDegraded,
    PluginRecovered,
    WriteRejected,
)
from sagentry.server.domain.writes import RowsSaved, RowUpdated, SaveMessage, WriteOutcome
from sagentry.server.errors import PluginError, StaleEpochError

logger = logging.getLogger(__name__)


class StoreNews:
    """Listens to the pipeline and the saver of one agent.

    Args:
        publish: Tells readers.
        fence: Ends the agent, because another server owns the conversation.

    Attributes:
        counters: The highest position and change that were seen.
    """

    def __init__(
        self, publish: Callable[[EventBody], None], fence: Callable[[StaleEpochError], None]
    ) -> None:
        """Begins with nothing seen."""
        self.counters = ConversationCounters()
        self._publish = publish
        self._fence = fence
        self._rows: dict[str, tuple[DisplayMessage, ...]] = {}

    def expect_rows(self, request_id: str) -> None:
        """Keeps the rows of a write until `take_rows`. Call it before the record."""
        self._rows[request_id] = ()

    def take_rows(self, request_id: str) -> tuple[DisplayMessage, ...]:
        """Returns the rows of a write, as far as they are stored, and keeps them no longer."""
        return self._rows.pop(request_id, ())

    def on_outcome(self, write: QueuedWrite, outcome: WriteOutcome) -> None:
        """Announces stored rows."""
        match outcome:
            case RowsSaved(rows=rows):
                if write.request.request_id in self._rows:
                    self._rows[write.request.request_id] = rows
                for row in rows:
                    self._saw(row)
                    self._publish(DisplayMessageSaved(row))
            case RowUpdated(row=row):
                self._saw(row)
                self._publish(DisplayMessageUpdated(row))
            case _:
                logger.info("a row to update is not there", extra={"entry": write.entry_id})

    def _saw(self, row: DisplayMessage) -> None:
        self.counters = ConversationCounters(
            max(self.counters.last_position, row.position),
            max(self.counters.last_change, row.change),
        )

    def on_rejected(self, write: QueuedWrite, error: PluginError) -> None:
        """Announces a display write that was set aside."""
        written = write.request.write
        message_id = (
            written.message.message_id if isinstance(written, SaveMessage) else written.message_id
        )
        self._publish(
            WriteRejected(error.plugin, error.method, message_id, error.reason, str(write.entry_id))
        )

    def on_state_rejected(self, error: PluginError) -> None:
        """Announces a save that was given up."""
        logger.error("a state is not saved", extra={"plugin": error.plugin, "reason": error.reason})
        self._publish(WriteRejected(error.plugin, error.method, "", error.reason, ""))

    def on_degraded(self, error: PluginError) -> None:
        """Announces a store that fails."""
        self._publish(
            PluginDegraded(
                error.plugin, error.method, error.reason, "writes wait in the server's journal"
            )
        )

    def on_recovered(self, plugin: str) -> None:
        """Announces a store that works again."""
        self._publish(PluginRecovered(plugin))

    def on_fenced(self, error: StaleEpochError) -> None:
        """Ends the agent: another server owns the conversation."""
        logger.warning("conversation is owned by another server", extra={"facts": error.facts})
        self._fence(error)
