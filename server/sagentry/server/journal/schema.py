"""The journal's file: its lock, its check before it is touched, and its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from sagentry.server.errors import (
    CorruptDataError,
    InvalidStateError,
    SagentryError,
    UnavailableError,
)
from sagentry.server.file_lock import FileLockedError, file_lock

VERSION = 2
"""Version of the tables. A file with a higher one is not touched. 2 added attempts and the highest id."""

BUSY_TIMEOUT = 5.0
"""Seconds that the writer waits for a lock: an operator's `sqlite3` may hold one for a moment."""

WAL_LIMIT = 64 * 1024 * 1024
"""Bytes that the write-ahead log is cut to after a burst."""

COLUMNS = (
    "entry_id, scope_kind, tenant, scope_partition, conversation_id, agent_id, kind, epoch, revision, "
    "payload, size, create_time"
)

_COLUMN_TYPES = """
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
    create_time TEXT NOT NULL"""

# Attempts have a table of their own: an update of an entry would write its payload once more.
_TABLES = f"""
CREATE TABLE IF NOT EXISTS entries ({_COLUMN_TYPES}
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_conversation
    ON entries (scope_kind, tenant, scope_partition, conversation_id, entry_id);
CREATE TABLE IF NOT EXISTS quarantine ({_COLUMN_TYPES},
    reason TEXT NOT NULL,
    quarantine_time TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS attempts (
    entry_id INTEGER PRIMARY KEY,
    attempts INTEGER NOT NULL,
    last_reason TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS numbers (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
"""


class JournalFile:
    """An open journal, locked against every other process and every other journal of this one.

    Attributes:
        writing: The connection of the one writer.
        reading: A connection that sees what is committed and holds nobody up.
    """

    def __init__(self, path: Path, *, fsync: bool) -> None:
        """Opens the file; makes it if there is none.

        Raises:
            CorruptDataError: JOURNAL_CORRUPT: the file is damaged or no journal. It is left as it is.
            InvalidStateError: JOURNAL_VERSION_UNSUPPORTED: a newer server wrote it; left as it is.
            UnavailableError: JOURNAL_IN_USE: somebody else has it; JOURNAL_UNUSABLE: cannot be opened.
        """
        with ExitStack() as stack, _errors_named(path):
            stack.enter_context(file_lock(path.with_name(f"{path.name}-lock")))
            _check(path)
            # Held for the whole life and used by one thread at a time.
            self.writing = stack.enter_context(
                closing(
                    sqlite3.connect(
                        path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT
                    )
                )
            )
            _prepare(self.writing, fsync=fsync)
            self.reading = stack.enter_context(_reader(path, check_same_thread=False))
            self._held = stack.pop_all()

    def close(self) -> None:
        """Closes both connections, which folds the write-ahead log into the file, and unlocks it."""
        self._held.close()


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileLockedError as error:
        raise UnavailableError(
            "JOURNAL_IN_USE", f"journal {path} is in use by {error.holder}", path=path
        ) from error
    except sqlite3.Error as error:
        raise read_error(error, path) from error
    except OSError as error:
        raise UnavailableError(
            "JOURNAL_UNUSABLE", f"journal {path} cannot be used: {error.strerror}", path=path
        ) from error


def read_error(error: sqlite3.Error, path: Path) -> SagentryError:
    """What a failure of SQLite says about the file: that it is damaged, or that it cannot be read now."""
    if isinstance(error, sqlite3.OperationalError):
        reason = "JOURNAL_IN_USE" if "locked" in str(error) else "JOURNAL_UNUSABLE"
        return UnavailableError(reason, f"journal {path} cannot be used: {error}", path=path)
    return _corrupt(path, str(error))


def _corrupt(path: Path, problem: str) -> CorruptDataError:
    return CorruptDataError("JOURNAL_CORRUPT", f"journal {path} is damaged: {problem}", path=path)


@contextmanager
def _reader(path: Path, *, check_same_thread: bool) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=check_same_thread
    )
    with closing(connection):
        yield connection


def _check(path: Path) -> None:
    """Looks at the file without writing to it: what is refused stays as it is, byte for byte."""
    if not path.exists() or path.stat().st_size == 0:
        log = path.with_name(f"{path.name}-wal")
        # SQLite would delete the log of a file that it makes anew.
        if log.exists() and log.stat().st_size > 0:
            raise _corrupt(path, f"it is gone, but its log {log.name} is there")
        return
    with _reader(path, check_same_thread=True) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InvalidStateError(
                "JOURNAL_VERSION_UNSUPPORTED",
                f"journal {path} was written by a newer server: its version is {version}, "
                f"this server reads up to {VERSION}",
                version=version,
                supported=VERSION,
            )
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if tables and (version < 1 or not {"entries", "quarantine"} <= tables):
            raise _corrupt(path, "it is a database, but no journal")
        problems = connection.execute("PRAGMA quick_check(1)").fetchall()
        if problems != [("ok",)]:
            raise _corrupt(path, problems[0][0])


def _prepare(connection: sqlite3.Connection, *, fsync: bool) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
