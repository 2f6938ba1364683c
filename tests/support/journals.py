"""What the tests of the journal share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.journal.sqlite_journal import DEFAULT_MAX_BYTES, SqliteJournal
from sagentry.server.ports import JournalRecord

ACME = ConversationKey(ScopeKey(ScopeKind.SCOPED, "acme"), "c")
UNSCOPED = ConversationKey(ScopeKey(ScopeKind.UNSCOPED), "c")


def patch(text: str, revision: int = 1) -> JournalRecord:
    return JournalRecord("patch", 7, revision, text)


@asynccontextmanager
async def opened(
    path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, max_pages: int | None = None
) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(path, max_bytes=max_bytes, max_pages=max_pages)
    try:
        yield journal
    finally:
        await journal.close()


async def append(
    journal: SqliteJournal,
    *records: JournalRecord,
    conversation: ConversationKey = ACME,
    agent_id: str = "agent",
) -> Sequence[int]:
    """Appends and waits; raises what kept the records off the disk."""
    done: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()

    def durable(entry_ids: Sequence[int], error: Exception | None) -> None:
        if error is None:
            done.set_result(entry_ids)
        else:
            done.set_exception(error)

    journal.append(conversation, agent_id, records, on_durable=durable)
    async with asyncio.timeout(30):
        return await done


async def texts(journal: SqliteJournal, conversation: ConversationKey = ACME) -> list[str]:
    """The payloads of a conversation, oldest first."""
    return [entry.record.payload for entry in await journal.read(conversation)]


@contextmanager
def writer_held(path: Path):
    """Makes the journal's next commit wait, so that everything appended meanwhile is ready together."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
