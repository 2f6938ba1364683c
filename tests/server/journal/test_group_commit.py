"""Whatever is ready shares a commit, callbacks keep the order, and nothing waits for a removal."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import weakref
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sagentry.server.journal.schema import JournalFile
from sagentry.server.journal.writer import Append, Close, Committed, Remove, Writer
from sagentry.server.ports import JournalRecord
from tests.support.journals import ACME, append, opened, patch, texts, writer_held


async def test_appends_that_are_ready_together_share_a_commit(tmp_path: Path) -> None:
    """A commit each would make the disk the speed of the whole server."""
    async with opened(tmp_path / "j.db") as journal:
        async with asyncio.TaskGroup() as tasks:
            with writer_held(tmp_path / "j.db"):
                for number in range(500):
                    tasks.create_task(append(journal, patch(str(number))))
                await asyncio.sleep(0)

        # What the writer took at first, and all the rest.
        assert journal.commits <= 2
        assert len(await journal.read(ACME)) == 500


async def test_callbacks_come_in_the_order_of_the_appends_refusals_among_them(
    tmp_path: Path,
) -> None:
    called: list[tuple[int, str]] = []
    done = asyncio.Event()

    def durable(number: int, ids: Sequence[int], error: Exception | None) -> None:
        assert bool(ids) == (error is None)
        called.append((number, "" if error is None else type(error).__name__))
        if number == 99:
            done.set()

    async with opened(tmp_path / "j.db", max_bytes=10_000) as journal:
        with writer_held(tmp_path / "j.db"):
            for number in range(100):
                size = 20_000 if number % 10 == 3 else 10
                text = "\ud800" if number % 10 == 7 else "x" * size
                journal.append(ACME, "a", [patch(text)], on_durable=partial(durable, number))
        await done.wait()
        entries = await journal.read(ACME)

    assert [number for number, _ in called] == list(range(100))
    expected = {3: "LimitExceededError", 7: "UnicodeEncodeError"}
    assert [error for _, error in called] == [expected.get(n % 10, "") for n in range(100)]
    assert len(entries) == 80
    assert [entry.entry_id for entry in entries] == sorted(entry.entry_id for entry in entries)


async def test_a_callback_that_raises_takes_none_of_its_neighbours_with_it(tmp_path: Path) -> None:
    reported: list[object] = []
    called: list[int] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))

    def durable(number: int, _ids: Sequence[int], _error: Exception | None) -> None:
        called.append(number)
        if number == 1:
            raise ArithmeticError

    try:
        async with opened(tmp_path / "j.db") as journal:
            with writer_held(tmp_path / "j.db"):
                for number in range(4):
                    journal.append(ACME, "a", [patch("x")], on_durable=partial(durable, number))
            await append(journal, patch("last"))
    finally:
        loop.set_exception_handler(None)

    assert called == [0, 1, 2, 3]
    assert [type(error) for error in reported] == [ArithmeticError]


async def test_one_wake_up_of_the_loop_tells_of_a_whole_commit(tmp_path: Path) -> None:
    told: list[Committed] = []
    done = asyncio.Event()

    def tell(committed: Committed) -> None:
        told.append(committed)
        if any(one.agent_id == "last" for one in committed.appends):
            done.set()

    path = tmp_path / "j.db"
    file = JournalFile(path, fsync=True)
    writer = Writer(file.writing, fsync=True, reserved=0, tell=tell)
    with writer_held(path):
        for number in range(1, 101):
            agent = "last" if number == 100 else "a"
            writer.put(Append(ACME, agent, [patch("x")], number, [1], lambda _ids, _error: None))
    await done.wait()
    writer.put(Close())
    await asyncio.to_thread(writer.join)
    commits = writer.commits
    file.close()

    assert commits <= 2
    assert len(told) == commits
    assert sum(len(committed.appends) for committed in told) == 100


@pytest.mark.parametrize("fsync", [True, False])
async def test_appends_wait_for_the_disk_and_removals_alone_do_not(
    tmp_path: Path, *, fsync: bool
) -> None:
    """A removal that a power cut takes back costs a repeated call, an fsync costs each time."""
    statements: list[str] = []
    file = JournalFile(tmp_path / "j.db", fsync=fsync)
    file.writing.set_trace_callback(statements.append)
    levels: list[int] = []

    def tell(_committed: Committed) -> None:
        told.set()

    writer = Writer(file.writing, fsync=fsync, reserved=100, tell=tell)
    for write in (
        Append(ACME, "a", [patch("x"), patch("y")], 1, [1, 1], lambda _ids, _error: None),
        Remove([1]),
        Append(ACME, "a", [patch("z")], 3, [1], lambda _ids, _error: None),
    ):
        told = asyncio.Event()
        writer.put(write)
        await told.wait()
        levels.append(file.writing.execute("PRAGMA synchronous").fetchone()[0])
    writer.put(Close())
    await asyncio.to_thread(writer.join)
    file.close()

    assert levels == ([2, 1, 2] if fsync else [1, 1, 1])
    assert statements.count("COMMIT") == 3


async def test_no_payload_stays_in_memory_after_its_commit(tmp_path: Path) -> None:
    class Watched(JournalRecord):
        """Can be referred to weakly."""

    async with opened(tmp_path / "j.db") as journal:
        record = Watched("patch", 1, 1, "x" * 1000)
        reference = weakref.ref(record)
        await append(journal, record)
        del record
        await journal.read(ACME)
        gc.collect()

        assert reference() is None


async def test_removed_entries_are_not_read_although_their_removal_is_not_written(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "j.db") as journal:
        first, _ = await append(journal, patch("a"), patch("b"))
        with writer_held(tmp_path / "j.db"):
            journal.remove([first])
            reading = asyncio.get_running_loop().create_task(texts(journal))
            await asyncio.sleep(0)

        assert await reading == ["b"]
        assert (journal.total_entries, journal.total_bytes) == (1, 1)


async def test_a_reader_does_not_see_what_is_appended_after_it_asked(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as journal:
        await append(journal, patch("a"))
        with writer_held(tmp_path / "j.db"):
            reading = asyncio.get_running_loop().create_task(texts(journal))
            await asyncio.sleep(0)
            later = asyncio.get_running_loop().create_task(append(journal, patch("b")))
            await asyncio.sleep(0)
        seen = await reading
        await later

        assert seen == ["a"]
        assert await texts(journal) == ["a", "b"]


async def test_a_long_reading_holds_no_append_up(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as journal:
        await append(journal, patch("a"))
        with closing(sqlite3.connect(tmp_path / "j.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            seen = reader.execute("SELECT COUNT(*) FROM entries").fetchone()
            await append(journal, patch("b"))

            assert reader.execute("SELECT COUNT(*) FROM entries").fetchone() == seen == (1,)


async def test_what_is_on_disk_and_not_told_yet_counts_once_towards_the_limit(
    tmp_path: Path,
) -> None:
    """Counted twice, an append that fits would be refused."""
    path = tmp_path / "j.db"
    async with opened(path, max_bytes=100) as journal:
        journal.append(ACME, "a", [patch("x" * 60)], on_durable=lambda _ids, _error: None)
        with closing(sqlite3.connect(path)) as reader:
            # Holds the loop, so that it hears nothing of the commit.
            while reader.execute("SELECT COUNT(*) FROM entries").fetchone() == (0,):
                pass
        await append(journal, patch("y" * 40))

        assert journal.total_bytes == 100
