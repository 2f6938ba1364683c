"""Writes to plugins, as the pipeline and the journal know them."""

from __future__ import annotations

from dataclasses import dataclass

from sagentry.server.domain.display import (
    DisplayItem,
    DisplayMessage,
    ToolInfo,
    ToolResultContent,
    ToolStatus,
)
from sagentry.server.domain.messages import Message


@dataclass(frozen=True, slots=True)
class SaveMessage:
    """Save a message as rows; idempotent by its message_id."""

    message: Message
    items: tuple[DisplayItem, ...]


@dataclass(frozen=True, slots=True)
class UpdateToolStatus:
    """Move a tool call's row; idempotent by (message_id, call_id, status)."""

    message_id: str
    call_id: str
    status: ToolStatus
    tool_info: ToolInfo


@dataclass(frozen=True, slots=True)
class ResolveToolResult:
    """Replace the content of a result row that held the place of an answer."""

    message_id: str
    call_id: str
    content: ToolResultContent


@dataclass(frozen=True, slots=True)
class SaveSynthetic:
    """Save a row that no message stands behind; idempotent by message_id."""

    message_id: str
    item: DisplayItem


DisplayWrite = SaveMessage | UpdateToolStatus | ResolveToolResult | SaveSynthetic


@dataclass(frozen=True, slots=True)
class RowsSaved:
    """Rows that were saved, in order; 0 or more."""

    rows: tuple[DisplayMessage, ...]


@dataclass(frozen=True, slots=True)
class RowUpdated:
    """A row after an update, changed or as it was."""

    row: DisplayMessage


@dataclass(frozen=True, slots=True)
class RowMissing:
    """There is no row to update."""


WriteOutcome = RowsSaved | RowUpdated | RowMissing
