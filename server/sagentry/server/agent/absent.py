"""What stands in the place of plugins that are not configured."""

from __future__ import annotations

from collections.abc import Sequence

from sagentry.server.domain.display import ConversationCounters, DisplayPage, ListOrder
from sagentry.server.domain.messages import Document, Message
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.writes import RowsSaved, WriteOutcome
from sagentry.server.errors import InvalidStateError
from sagentry.server.ports import (
    Accepted,
    DisplayStoreCapabilities,
    PluginCall,
    StateStoreCapabilities,
    StoredState,
    WriteRequest,
)

UNLIMITED = 32 * 1024 * 1024


class NoStateStore:
    """Forgets: agents live in memory only, and are gone when they sleep."""

    plugin = "none"
    capabilities = StateStoreCapabilities()
    max_state_bytes = UNLIMITED

    async def load(self, _call: PluginCall, *, claim_as: str | None) -> StoredState:
        """Finds nothing."""
        del claim_as
        return StoredState(base_json=None)

    async def persist(
        self,
        _call: PluginCall,
        *,
        lifecycle: Lifecycle,
        state_json: str,
        schema_version: int,
        revision: int,
        release: bool,
    ) -> None:
        """Takes the state and forgets it."""
        del lifecycle, state_json, schema_version, revision, release

    async def append(
        self, _call: PluginCall, *, expected_revision: int, revision: int, patch_json: str
    ) -> bool:
        """Is never called: the capability is not declared."""
        del expected_revision, revision, patch_json
        return False

    async def set_interrupted(self, _call: PluginCall, *, interrupted: bool, revision: int) -> None:
        """Is never called: the capability is not declared."""
        del interrupted, revision


class NoDisplayStore:
    """Keeps no rows: readers see messages on the stream only."""

    plugin = "none"
    capabilities = DisplayStoreCapabilities()

    async def open(self, _call: PluginCall) -> ConversationCounters:
        """Knows no rows."""
        return ConversationCounters()

    async def apply(
        self, _call: PluginCall, writes: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        """Takes the writes; each makes no row."""
        return [RowsSaved(()) for _ in writes]

    async def list_rows(
        self, _call: PluginCall, *, order: ListOrder, after: int | None, page_size: int
    ) -> DisplayPage:
        """Refuses: there is no transcript to read.

        Raises:
            InvalidStateError: PLUGIN_INCOMPATIBLE.
        """
        del order, after, page_size
        raise InvalidStateError(
            "PLUGIN_INCOMPATIBLE", "no display store is configured, so there are no rows to list"
        )


class NoPreprocessor:
    """Accepts every message as it is."""

    plugin = "none"

    async def preprocess(
        self,
        _call: PluginCall,
        message: Message,
        *,
        tool_context: Document | None,
        messages: Sequence[Message],
    ) -> Accepted:
        """Gives both halves the whole message."""
        del tool_context, messages
        return Accepted(display=message, llm=message)
