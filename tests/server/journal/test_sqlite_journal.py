"""The journal: what it says is on disk is there after any crash, and what it refuses has left no trace."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sagentry.server.errors import LimitExceededError, UnavailableError
from sagentry.server.journal.sqlite_journal import SqliteJournal
from tests.support.journals import ACME, UNSCOPED, append, opened, patch, texts


async def test_what_was_appended_is_read_after_reopening_in_order_and_verbatim(
    tmp_path: Path,
) -> None:
    texts = ['{"a": "é\\u0000\\ud83d"}', "x" * 100_000, "三"]
    journal = SqliteJournal(tmp_path / "j.db")
    await append(journal, *(patch(text, n) for n, text in enumerate(texts, 1)))
    await journal.close()

    journal = SqliteJournal(tmp_path / "j.db")
    entries = await journal.read(ACME)
    await journal.close()

    assert [entry.record.payload for entry in entries] == texts
    assert [entry.record.revision for entry in entries] == [1, 2, 3]
    assert entries[0].record.epoch == 7
    assert journal.total_entries == 3
    assert journal.total_bytes == sum(len(text.encode()) for text in texts)


async def test_conversations_are_kept_apart_and_the_unscoped_one_is_its_own(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    await append(journal, patch("a"))
    await append(journal, patch("b"), conversation=UNSCOPED)

    assert [entry.record.payload for entry in await journal.read(UNSCOPED)] == ["b"]
    assert await journal.conversations() == [(ACME, "agent"), (UNSCOPED, "agent")]
    await journal.close()


async def test_removed_entries_are_gone_and_their_neighbours_stay(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    first, second = await append(journal, patch("a"), patch("b"))
    journal.remove([first])
    journal.remove([first])

    assert [entry.entry_id for entry in await journal.read(ACME)] == [second]
    assert (journal.total_entries, journal.total_bytes) == (1, 1)
    await journal.close()


async def test_what_is_set_aside_is_kept_and_never_read_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as journal:
        poison, other = await append(journal, patch("poison"), patch("other"))
        journal.set_aside([poison], "PLUGIN_REFUSED")

        assert await texts(journal) == ["other"]
        assert (journal.total_entries, journal.total_bytes) == (1, 5)
        assert [facts.entry_id for facts in await journal.list_facts()] == [other]
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection:
        ((payload, reason, time),) = connection.execute(
            "SELECT payload, reason, quarantine_time FROM quarantine"
        ).fetchall()

    assert (payload, reason) == ("poison", "PLUGIN_REFUSED")
    assert datetime.fromisoformat(time).tzinfo is not None


async def test_failed_attempts_are_counted_for_operators_and_follow_into_quarantine(
    tmp_path: Path,
) -> None:
    before = datetime.now(UTC)
    async with opened(tmp_path / "j.db") as journal:
        first, second, third = await append(journal, patch("a", 4), patch("bc", 5), patch("d", 6))
        journal.note_attempt([first, second], "PLUGIN_UNAVAILABLE")
        journal.note_attempt([second], "PLUGIN_FAULT")
        journal.note_attempt([999], "PLUGIN_FAULT")
        journal.set_aside([second], "POISON")
        journal.remove([third])
    async with opened(tmp_path / "j.db") as journal:
        (waiting,) = await journal.list_facts()
        (aside,) = await journal.list_facts(quarantined=True)

    assert (waiting.entry_id, waiting.attempts, waiting.last_reason) == (
        first,
        1,
        "PLUGIN_UNAVAILABLE",
    )
    assert (aside.entry_id, aside.attempts, aside.last_reason) == (second, 2, "POISON")
    assert (aside.conversation, aside.agent_id, aside.kind) == (ACME, "agent", "patch")
    assert (aside.epoch, aside.revision, aside.size) == (7, 5, 2)
    assert before <= aside.create_time <= datetime.now(UTC)


async def test_facts_come_in_pages(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as journal:
        ids = await append(journal, *(patch(str(n)) for n in range(5)))
        pages = [await journal.list_facts(limit=2)]
        while pages[-1]:
            pages.append(await journal.list_facts(limit=2, after=pages[-1][-1].entry_id))

    assert [[facts.entry_id for facts in page] for page in pages] == [
        list(ids[:2]),
        list(ids[2:4]),
        list(ids[4:]),
        [],
    ]


async def test_a_conversation_is_listed_with_the_agent_that_wrote_last(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as journal:
        await append(journal, patch("a"), agent_id="old")
        await append(journal, patch("b"), agent_id="new")

        assert await journal.conversations() == [(ACME, "new")]


@pytest.mark.parametrize("is_set_aside", [True, False])
async def test_an_entry_id_is_never_given_twice_even_after_all_are_gone(
    tmp_path: Path, *, is_set_aside: bool
) -> None:
    """A late removal of an old id, or an operator with an old list, must not meet a new entry."""
    given: list[int] = []
    for _ in range(3):
        async with opened(tmp_path / "j.db") as journal:
            ids = await append(journal, patch("a"), patch("b"))
            if is_set_aside:
                journal.set_aside(ids, "X")
            else:
                journal.remove(ids)
            given += ids

    assert given == sorted(set(given))


async def test_an_append_over_the_limit_is_refused_whole_and_smaller_ones_go_on(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(tmp_path / "j.db", max_bytes=100)
    await append(journal, patch("x" * 60))
    with pytest.raises(LimitExceededError) as caught:
        await append(journal, patch("y" * 10), patch("z" * 60))
    await append(journal, patch("w" * 40))
    entries = await journal.read(ACME)
    await journal.close()

    assert caught.value.reason == "JOURNAL_FULL"
    assert (caught.value.metadata["limit"], caught.value.metadata["actual"]) == ("100", "130")
    assert [entry.record.payload[0] for entry in entries] == ["x", "w"]


async def test_closing_writes_what_is_queued_and_refuses_what_comes_after(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(append(journal, patch(str(number))))
        await asyncio.sleep(0)
        await journal.close()
        await journal.close()
    with pytest.raises(UnavailableError):
        await append(journal, patch("late"))
    journal.remove([1])

    journal = SqliteJournal(tmp_path / "j.db")
    assert len(await journal.read(ACME)) == 20
    await journal.close()
