"""The journal's file: opening, checking, and its tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sagentry.server.errors import CorruptDataError, InvalidStateError, UnavailableError

VERSION = 1
"""Version of the tables. A file with a higher one is not touched."""

_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    entry_id INTEGER PRIMARY KEY,
    scope_kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    scope_partition TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    payload TEXT NOT NULL,
    size INTEGER NOT NULL,
    create_time TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_conversation
    ON entries (scope_kind, tenant, scope_partition, conversation_id, entry_id);
CREATE TABLE IF NOT EXISTS quarantine (
    entry_id INTEGER PRIMARY KEY,
    scope_kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    scope_partition TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    payload TEXT NOT NULL,
    size INTEGER NOT NULL,
    create_time TEXT NOT NULL,
    reason TEXT NOT NULL,
    quarantine_time TEXT NOT NULL
) STRICT;
"""


def open_journal(path: Path, *, fsync: bool) -> sqlite3.Connection:
    """Opens the journal's file for its one writer; makes it if there is none.

    Raises:
        CorruptDataError: JOURNAL_CORRUPT: the file is damaged or not a journal. It is left as it is.
        InvalidStateError: JOURNAL_VERSION_UNSUPPORTED: a newer server wrote it.
        UnavailableError: JOURNAL_IN_USE: another process has it; JOURNAL_UNUSABLE: it cannot be opened.
    """
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=0.2
        )
        try:
            _prepare(connection, path, fsync=fsync)
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        reason = "JOURNAL_IN_USE" if "locked" in str(error) else "JOURNAL_UNUSABLE"
        raise UnavailableError(reason, f"journal {path}: {error}", path=path) from error
    except sqlite3.DatabaseError as error:
        raise CorruptDataError(
            "JOURNAL_CORRUPT", f"journal {path} cannot be read: {error}", path=path
        ) from error
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, *, fsync: bool) -> None:
    # Held for the life of the process: a second writer is refused instead of mixed in.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise InvalidStateError(
            "JOURNAL_VERSION_UNSUPPORTED",
            f"journal {path} was written by a newer server",
            version=version,
            supported=VERSION,
        )
    problems = connection.execute("PRAGMA quick_check(1)").fetchall()
    if problems != [("ok",)]:
        raise CorruptDataError(
            "JOURNAL_CORRUPT", f"journal {path} is damaged: {problems[0][0]}", path=path
        )
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
