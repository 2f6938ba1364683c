"""No space, or a disk that fails: refused in words, nothing acknowledged lost, and it goes on after."""

from __future__ import annotations

import asyncio
import logging
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sagentry.server.errors import CorruptDataError, LimitExceededError
from sagentry.server.journal.sqlite_journal import SqliteJournal
from tests.support.journals import ACME, append, opened, patch, texts

PAGES = 60


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Makes every write past this many bytes of a file fail, as the kernel does it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_refuses_with_the_cause_and_works_again_when_there_is_space(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "j.db", max_pages=PAGES) as journal:
        (first,) = await append(journal, patch("x" * 100_000))
        with pytest.raises(LimitExceededError, match="full") as caught:
            await append(journal, patch("y" * 200_000))
        counted = (journal.total_entries, journal.total_bytes)
        journal.remove([first])
        await append(journal, patch("z" * 100_000))
        assert await texts(journal) == ["z" * 100_000]

    assert caught.value.reason == "JOURNAL_FULL"
    assert set(caught.value.metadata) == {"limit", "actual"}
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert counted == (1, 100_000)


async def test_of_appends_in_one_commit_exactly_those_that_fit_are_kept(tmp_path: Path) -> None:
    """One agent's huge record must not refuse the small ones of its neighbours."""
    order: list[str] = []

    async def one(journal: SqliteJournal, name: str, size: int) -> None:
        try:
            await append(journal, patch(name * size))
        except LimitExceededError:
            order.append(f"{name} refused")
        else:
            order.append(f"{name} kept")

    async with opened(tmp_path / "j.db", max_pages=PAGES) as journal:
        sizes = {"a": 10, "b": 400_000, "c": 10, "d": 10, "e": 400_000, "f": 10}
        await asyncio.gather(*(one(journal, name, size) for name, size in sizes.items()))
        kept = await texts(journal)
        counted = (journal.total_entries, journal.total_bytes)

    assert order == ["a kept", "b refused", "c kept", "d kept", "e refused", "f kept"]
    assert [text[0] for text in kept] == ["a", "c", "d", "f"]
    assert counted == (4, 40)


async def test_a_group_that_does_not_fit_leaves_none_of_its_records(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db", max_pages=PAGES) as journal:
        with pytest.raises(LimitExceededError):
            await append(journal, patch("small"), patch("y" * 400_000))
        assert await texts(journal) == []
    async with opened(tmp_path / "j.db") as journal:
        assert (journal.total_entries, journal.total_bytes) == (0, 0)


async def test_a_failing_disk_refuses_keeps_what_was_acknowledged_and_removes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit on a file's size makes real writes fail, those of removals too."""
    path = tmp_path / "j.db"
    caplog.set_level(logging.INFO)
    async with opened(path) as journal:
        removed, _ = await append(journal, patch("removed"), patch("kept"))
        size = path.with_name("j.db-wal").stat().st_size
        with files_limited_to(size):
            with pytest.raises(LimitExceededError) as caught:
                await append(journal, patch("refused"))
            journal.remove([removed])
            journal.note_attempt([removed], "X")
            during = await texts(journal)
            with pytest.raises(LimitExceededError):
                await append(journal, patch("refused"))
        await append(journal, patch("after"))
        assert await texts(journal) == ["kept", "after"]
        assert (journal.total_entries, journal.total_bytes) == (2, 9)
    async with opened(path) as journal:
        assert await texts(journal) == ["kept", "after"]

    assert during == ["kept"]
    assert caught.value.reason == "JOURNAL_FULL"
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    said = [record.message for record in caplog.records if record.name.startswith("sagentry")]
    assert said.count("the journal cannot be written") == 1
    assert said[-1] == "the journal can be written again"


async def test_a_removal_that_could_not_be_written_is_written_at_the_close(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as journal:
        ids = await append(journal, patch("removed"))
        with files_limited_to(path.with_name("j.db-wal").stat().st_size):
            journal.remove(ids)
            assert await texts(journal) == []
    async with opened(path) as journal:
        assert await texts(journal) == []


async def test_damage_that_is_met_while_reading_is_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as journal:
        await append(journal, *(patch("x" * 3000) for _ in range(40)))
    async with opened(path) as journal:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xaa" * 4096 * 30)
        with pytest.raises(CorruptDataError, match=r"j\.db"):
            await journal.read(ACME)


async def test_a_lock_that_somebody_holds_too_long_refuses_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as journal:
        # Not the five seconds of a real one.
        journal._file.writing.execute("PRAGMA busy_timeout = 1")  # noqa: SLF001 - as said
        with closing(sqlite3.connect(path, isolation_level=None)) as operator:
            operator.execute("BEGIN IMMEDIATE")
            with pytest.raises(LimitExceededError, match="locked"):
                await append(journal, patch("a"))
            operator.execute("ROLLBACK")
        await append(journal, patch("b"))
        assert await texts(journal) == ["b"]
