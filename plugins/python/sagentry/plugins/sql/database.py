"""Opens the database: checks what is there, migrates it, and makes the engines for writing and reading."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from sagentry.plugins.sql.migrate import NewerSchemaError, check_revision, migrate
from sagentry.plugins.sql.reader import THREADS

APPLICATION_ID = 0x53414745
"""Marks a file as ours (`SAGE`), also for `file` and other tools."""

BUSY_SECONDS = 2.0
"""How long a write waits for another process's lock. Below the 3 s that the host gives a call."""

_VERSION = "SELECT version_num FROM alembic_version"


class DatabaseError(Exception):
    """The database cannot be used; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database with the newest tables.

    Attributes:
        writing: For the one writer; its transactions begin with the lock for writing.
        reading: For readers; it refuses to write.
    """

    writing: Engine
    reading: Engine

    def close(self) -> None:
        """Closes all connections."""
        self.reading.dispose()
        self.writing.dispose()


def open_database(target: str, *, busy_seconds: float = BUSY_SECONDS) -> Database:
    """Opens a database, which is made if it does not exist, and brings its tables up to date.

    Args:
        target: Path of a SQLite file, or a `sqlite:///…` address.
        busy_seconds: How long a write waits for another process's lock.

    Raises:
        DatabaseError: if it cannot be used. A database of another application, or of a later
            version, is not touched.
    """
    path = _path(target)
    try:
        _check_place(path)
        with _alone(path):
            _check_content(path)
            # Rows are what users said: nobody else's to read. SQLite gives its other files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            writing = _engine(path, begin="BEGIN IMMEDIATE", busy_seconds=busy_seconds)
            try:
                _prepare(writing)
            except BaseException:
                writing.dispose()
                raise
    except NewerSchemaError as error:
        raise DatabaseError(f"{path}: {error}") from error
    except (sqlite3.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise DatabaseError(f"{path}: {cause}") from error
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror or error}") from error
    reading = _engine(path, begin="BEGIN", busy_seconds=busy_seconds, query_only=True)
    return Database(writing=writing, reading=reading)


def _path(target: str) -> Path:
    if "://" not in target:
        return Path(target).absolute()
    try:
        url = make_url(target)
        kind = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise DatabaseError("the address of the database is malformed") from error
    if kind != "sqlite":
        raise DatabaseError(f"databases of the kind {kind!r} are not supported, only sqlite")
    if not url.database or url.database == ":memory:":
        raise DatabaseError("a database in memory keeps nothing: name a file")
    return Path(url.database).absolute()


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise DatabaseError(f"{path}: is a directory, not a database")
    if not path.parent.is_dir():
        raise DatabaseError(f"{path.parent}: no such directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DatabaseError(f"{path.parent}: the directory cannot be written to")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise DatabaseError(f"{path}: the file cannot be read and written")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lets one process at a time open the file: the change to WAL does not wait for locks by itself."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _check_content(path: Path) -> None:
    """Looks into an existing file without changing it."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id != APPLICATION_ID:
            if tables or application_id:
                raise DatabaseError(f"{path}: is the database of another application")
            return
        version = connection.execute(_VERSION).fetchone()
        check_revision(version[0] if version else None)


def _prepare(engine: Engine) -> None:
    with engine.begin() as connection:
        revision = _revision(connection)
        if check_revision(revision):
            return
        migrate(connection, revision)
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def _revision(connection: Connection) -> str | None:
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    revision = connection.execute(text(_VERSION)).scalar()
    return None if revision is None else str(revision)


def _engine(path: Path, *, begin: str, busy_seconds: float, query_only: bool = False) -> Engine:
    size = THREADS if query_only else 1
    engine = create_engine(
        URL.create("sqlite+pysqlite", database=str(path)), pool_size=size, max_overflow=0
    )

    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        # Transactions begin where `on_begin` says so, not where the driver guesses.
        connection.isolation_level = None
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA trusted_schema = OFF")
            cursor.execute("PRAGMA synchronous = FULL")
            if query_only:
                cursor.execute("PRAGMA query_only = ON")
            else:
                cursor.execute("PRAGMA journal_mode = WAL")
                cursor.execute("PRAGMA journal_size_limit = 67108864")

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine
