"""The journal's statements, and its rows as values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.journal.schema import COLUMNS
from sagentry.server.ports import JournalEntry, JournalRecord

HIGHEST_ID = "highest_id"

# Ids go in as one JSON array: any number of them is one statement.
_LISTED = "entry_id IN (SELECT value FROM json_each(?))"

_INSERT = f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608

_READ = (
    "SELECT entry_id, scope_kind, tenant, scope_partition, conversation_id, agent_id, "  # noqa: S608
    "kind, epoch, revision, payload FROM entries WHERE scope_kind = ? AND tenant = ? "
    f"AND scope_partition = ? AND conversation_id = ? AND entry_id <= ? AND NOT {_LISTED} "
    "ORDER BY entry_id"
)

# With one bare MAX, SQLite takes the other columns from the row that has it.
_CONVERSATIONS = (
    "SELECT scope_kind, tenant, scope_partition, conversation_id, agent_id, MAX(entry_id) "  # noqa: S608
    f"FROM entries WHERE entry_id <= ? AND NOT {_LISTED} "
    "GROUP BY scope_kind, tenant, scope_partition, conversation_id"
)

_FACTS = (
    "SELECT entry_id, scope_kind, tenant, scope_partition, conversation_id, agent_id, kind, epoch, "  # noqa: S608
    "revision, size, create_time, COALESCE(attempts, 0), {reason} FROM {table} "
    f"LEFT JOIN attempts USING (entry_id) WHERE entry_id > ? AND entry_id <= ? AND NOT {_LISTED} "
    "ORDER BY entry_id LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What is known of an entry of the journal or the quarantine besides its content.

    Attributes:
        entry_id: Identity of the entry.
        conversation: What it belongs to.
        agent_id: The agent that wrote it.
        kind: What it is.
        epoch: Epoch that it belongs to.
        revision: Revision of a patch; 0 otherwise.
        size: Bytes of its payload.
        create_time: When it was written.
        attempts: How often it was sent without success.
        last_reason: Why it was last refused; in quarantine why it is there; empty for never.
    """

    entry_id: int
    conversation: ConversationKey
    agent_id: str
    kind: str
    epoch: int
    revision: int
    size: int
    create_time: datetime
    attempts: int
    last_reason: str


@dataclass(frozen=True, slots=True)
class View:
    """What a reader may see: not what was appended after it asked, and not what was removed before.

    Attributes:
        up_to: The last entry.
        without: Entries whose removal could not be written yet.
    """

    up_to: int
    without: AbstractSet[int]

    def hidden(self) -> str:
        """The hidden entries as a JSON array."""
        return json.dumps(sorted(self.without))


NewRow = tuple[int, ConversationKey, str, JournalRecord, int]
"""Entry id, conversation, agent, record, bytes of the payload."""


def size_of(payload: str) -> int:
    """Bytes of a payload. Text that cannot be stored has a size, too; it is refused when it is written."""
    return len(payload) if payload.isascii() else len(payload.encode("utf-8", "surrogatepass"))


def insert(connection: sqlite3.Connection, rows: Iterable[NewRow]) -> None:
    """Writes new entries."""
    now = datetime.now(UTC).isoformat()
    connection.executemany(
        _INSERT,
        (
            (
                entry_id,
                *_key(conversation),
                agent_id,
                record.kind,
                record.epoch,
                record.revision,
                record.payload,
                size,
                now,
            )
            for entry_id, conversation, agent_id, record, size in rows
        ),
    )


def remove(connection: sqlite3.Connection, entry_ids: Sequence[int]) -> tuple[int, int]:
    """Removes entries; returns how many there were and their bytes."""
    listed = (json.dumps(entry_ids),)
    removed = _delete(connection, listed)
    connection.execute(f"DELETE FROM attempts WHERE {_LISTED}", listed)  # noqa: S608
    return removed


def set_aside(
    connection: sqlite3.Connection, entry_ids: Sequence[int], reason: str
) -> tuple[int, int]:
    """Moves entries to quarantine, with the count of their attempts; returns as `remove`."""
    listed = json.dumps(entry_ids)
    connection.execute(
        f"INSERT INTO quarantine ({COLUMNS}, reason, quarantine_time) "  # noqa: S608
        f"SELECT {COLUMNS}, ?, ? FROM entries WHERE {_LISTED}",
        (reason, datetime.now(UTC).isoformat(), listed),
    )
    return _delete(connection, (listed,))


def _delete(connection: sqlite3.Connection, listed: tuple[str]) -> tuple[int, int]:
    sizes = connection.execute(
        f"DELETE FROM entries WHERE {_LISTED} RETURNING size",  # noqa: S608
        listed,
    ).fetchall()
    return len(sizes), sum(size for (size,) in sizes)


def note_attempt(connection: sqlite3.Connection, entry_ids: Sequence[int], reason: str) -> None:
    """Counts a failed attempt for each of the entries that exist."""
    connection.execute(
        "INSERT INTO attempts (entry_id, attempts, last_reason) "  # noqa: S608
        f"SELECT entry_id, 1, ? FROM entries WHERE {_LISTED} "
        "ON CONFLICT (entry_id) DO UPDATE SET attempts = attempts + 1, last_reason = excluded.last_reason",
        (reason, json.dumps(entry_ids)),
    )


def totals(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Returns how many entries there are, their bytes, and the highest id that was ever given."""
    row: tuple[int, int, int] = connection.execute(
        "SELECT COUNT(*), COALESCE(SUM(size), 0), MAX(COALESCE(MAX(entry_id), 0), "
        "(SELECT COALESCE(MAX(entry_id), 0) FROM quarantine), "
        "COALESCE((SELECT value FROM numbers WHERE name = ?), 0)) FROM entries",
        (HIGHEST_ID,),
    ).fetchone()
    return row


def reserve_ids(connection: sqlite3.Connection, highest: int) -> None:
    """Notes that ids up to this one may have been given, so that no later run gives them again."""
    connection.execute(
        "INSERT INTO numbers VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (HIGHEST_ID, highest),
    )


def read(
    connection: sqlite3.Connection, conversation: ConversationKey, view: View
) -> list[JournalEntry]:
    """Returns the entries of a conversation, oldest first."""
    rows = connection.execute(_READ, (*_key(conversation), view.up_to, view.hidden()))
    return [
        JournalEntry(
            entry_id, conversation, agent_id, JournalRecord(kind, epoch, revision, payload)
        )
        for entry_id, *_, agent_id, kind, epoch, revision, payload in rows
    ]


def conversations(connection: sqlite3.Connection, view: View) -> list[tuple[ConversationKey, str]]:
    """Returns (conversation, newest agent) of all entries, the one written to longest ago first."""
    rows = connection.execute(_CONVERSATIONS, (view.up_to, view.hidden())).fetchall()
    return [(_conversation(row[0:4]), row[4]) for row in sorted(rows, key=lambda row: int(row[5]))]


def list_facts(
    connection: sqlite3.Connection, view: View, *, quarantined: bool, after: int, limit: int
) -> list[EntryFacts]:
    """Returns a page of entries after an id, oldest first, without their content."""
    statement = (
        _FACTS.format(table="quarantine", reason="reason")
        if quarantined
        else _FACTS.format(table="entries", reason="COALESCE(last_reason, '')")
    )
    rows = connection.execute(statement, (after, view.up_to, view.hidden(), limit))
    return [
        EntryFacts(
            entry_id,
            _conversation((scope_kind, tenant, partition, conversation_id)),
            agent_id,
            kind,
            epoch,
            revision,
            size,
            datetime.fromisoformat(create_time),
            attempts,
            last_reason,
        )
        for (
            entry_id,
            scope_kind,
            tenant,
            partition,
            conversation_id,
            agent_id,
            kind,
            epoch,
            revision,
            size,
            create_time,
            attempts,
            last_reason,
        ) in rows
    ]


def _key(conversation: ConversationKey) -> tuple[str, str, str, str]:
    scope = conversation.scope
    return scope.kind.value, scope.tenant, scope.partition, conversation.conversation_id


def _conversation(row: Sequence[str]) -> ConversationKey:
    kind, tenant, partition, conversation_id = row
    return ConversationKey(ScopeKey(ScopeKind(kind), tenant, partition), conversation_id)
