"""A journal that cannot be trusted or is not ours is refused, and left as it is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sagentry.server.errors import CorruptDataError, InvalidStateError, UnavailableError
from sagentry.server.journal.schema import VERSION
from sagentry.server.journal.sqlite_journal import SqliteJournal
from tests.support.journals import append, opened, patch, texts
from tests.support.repository import ROOT


async def fill(path: Path) -> None:
    """Makes a journal of some pages."""
    async with opened(path) as journal:
        await append(journal, *(patch("x" * 3000) for _ in range(40)))


@pytest.mark.parametrize("content", [b"this is no database" * 400, b"\x00" * 8192, b"SQLite"])
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"j\.db") as caught:
        SqliteJournal(path)

    assert path.read_bytes() == content
    assert caught.value.reason == "JOURNAL_CORRUPT"


@pytest.mark.parametrize("version", [0, 1, VERSION, -1])
async def test_a_database_that_is_no_journal_is_refused_and_left_as_it_is(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "j.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(CorruptDataError, match="no journal"):
        SqliteJournal(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["overwritten", "cut", "cut to a page"])
async def test_a_damaged_journal_is_refused_and_not_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "j.db"
    await fill(path)
    raw = bytearray(path.read_bytes())
    if damage == "overwritten":
        raw[4096 * 3 : 4096 * 5] = b"\xaa" * 8192
    else:
        del raw[4096 * 6 if damage == "cut" else 4096 :]
    path.write_bytes(raw)

    for _ in range(2):
        with pytest.raises(CorruptDataError, match=r"j\.db"):
            SqliteJournal(path)
    assert path.read_bytes() == bytes(raw)


@pytest.mark.parametrize("leftover", [None, b""])
async def test_a_journal_that_is_gone_while_its_log_is_there_is_not_made_anew(
    tmp_path: Path, leftover: bytes | None
) -> None:
    """SQLite would delete the log, and with it what was acknowledged."""
    path, log = tmp_path / "j.db", tmp_path / "j.db-wal"
    log.write_bytes(b"acknowledged")
    if leftover is not None:
        path.write_bytes(leftover)
    with pytest.raises(CorruptDataError, match="its log"):
        SqliteJournal(path)

    assert log.read_bytes() == b"acknowledged"


async def test_a_newer_servers_journal_is_refused_in_words_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE of_the_future (x)")
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(
        InvalidStateError, match=r"j\.db .* newer server.* 99, .* up to 2"
    ) as caught:
        SqliteJournal(path)

    assert caught.value.reason == "JOURNAL_VERSION_UNSUPPORTED"
    assert path.read_bytes() == before


async def test_a_journal_of_version_1_is_brought_up_to_date_with_its_entries(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DROP TABLE attempts; DROP TABLE numbers; PRAGMA user_version = 1;"
        )

    async with opened(path) as journal:
        assert len(await texts(journal)) == 40
        (new,) = await append(journal, patch("new"))
        journal.note_attempt([new], "X")
        assert (await journal.list_facts(after=40))[0].attempts == 1
        assert new == 41


async def test_a_second_opener_is_told_who_has_it_and_disturbs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as journal:
        await append(journal, patch("a"))
        with pytest.raises(UnavailableError, match=r"in use by pid \d+") as caught:
            SqliteJournal(path)
        await append(journal, patch("b"))
        assert await texts(journal) == ["a", "b"]

    assert caught.value.reason == "JOURNAL_IN_USE"


OPENER = """
import asyncio, pathlib, sys
from sagentry.server.errors import SagentryError
from sagentry.server.journal.sqlite_journal import SqliteJournal

async def main():
    try:
        await SqliteJournal(pathlib.Path(sys.argv[1])).close()
    except SagentryError as error:
        print(error.reason)
    else:
        print("opened")

asyncio.run(main())
"""


async def test_another_process_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    def other() -> str:
        command = [sys.executable, "-c", OPENER, str(tmp_path / "j.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout.strip()

    async with opened(tmp_path / "j.db"):
        assert other() == "JOURNAL_IN_USE"
    assert other() == "opened"


async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be used") as caught:
        SqliteJournal(tmp_path / "missing" / "j.db")

    assert caught.value.reason == "JOURNAL_UNUSABLE"


async def test_a_path_with_signs_of_an_address_is_a_path(tmp_path: Path) -> None:
    """The reader opens by an address, in which these would end the path."""
    folder = tmp_path / "a?b#c %41"
    folder.mkdir()
    async with opened(folder / "j.db") as journal:
        await append(journal, patch("a"))
        assert await texts(journal) == ["a"]
