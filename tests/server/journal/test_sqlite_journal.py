"""The journal: what it says is on disk is there after any crash, and what it refuses has left no trace."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.errors import (
    CorruptDataError,
    InvalidStateError,
    LimitExceededError,
    UnavailableError,
)
from sagentry.server.journal.sqlite_journal import SqliteJournal
from sagentry.server.ports import JournalRecord
from tests.support import journal_writer

ACME = ConversationKey(ScopeKey(ScopeKind.SCOPED, "acme"), "c")
UNSCOPED = ConversationKey(ScopeKey(ScopeKind.UNSCOPED), "c")


def patch(text: str, revision: int = 1) -> JournalRecord:
    return JournalRecord("patch", 7, revision, text)


async def append(
    journal: SqliteJournal, *records: JournalRecord, conversation: ConversationKey = ACME
) -> Sequence[int]:
    """Appends and waits; raises what kept the records off the disk."""
    done: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()

    def durable(entry_ids: Sequence[int], error: Exception | None) -> None:
        if error is None:
            done.set_result(entry_ids)
        else:
            done.set_exception(error)

    journal.append(conversation, "agent", records, on_durable=durable)
    async with asyncio.timeout(30):
        return await done


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
    journal = SqliteJournal(tmp_path / "j.db")
    (entry_id,) = await append(journal, patch("poison"))
    journal.set_aside([entry_id], "PLUGIN_REFUSED")
    left = await journal.read(ACME)
    await journal.close()

    with sqlite3.connect(tmp_path / "j.db") as connection:
        rows = connection.execute("SELECT payload, reason FROM quarantine").fetchall()
    connection.close()
    assert left == []
    assert rows == [("poison", "PLUGIN_REFUSED")]


async def test_an_entry_id_is_never_given_twice_even_after_all_are_removed(tmp_path: Path) -> None:
    """A late removal of an old id must not remove a new entry."""
    journal = SqliteJournal(tmp_path / "j.db")
    (first,) = await append(journal, patch("a"))
    journal.set_aside([first], "X")
    await journal.close()
    journal = SqliteJournal(tmp_path / "j.db")
    (second,) = await append(journal, patch("b"))
    await journal.close()

    assert second > first


async def test_many_appends_that_are_ready_share_a_commit(tmp_path: Path) -> None:
    """A commit each would make the disk the speed of the whole server."""
    journal = SqliteJournal(tmp_path / "j.db")
    await asyncio.gather(*(append(journal, patch(str(n))) for n in range(500)))
    commits = journal.commits
    await journal.close()

    assert commits <= 100


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


async def test_a_full_disk_refuses_and_works_again_when_there_is_space(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db", max_pages=40)
    (first,) = await append(journal, patch("x" * 50_000))
    with pytest.raises(LimitExceededError) as caught:
        await append(journal, patch("y" * 200_000))
    journal.remove([first])
    await append(journal, patch("z" * 50_000))
    entries = await journal.read(ACME)
    await journal.close()

    assert caught.value.reason == "JOURNAL_FULL"
    assert [entry.record.payload[0] for entry in entries] == ["z"]


async def test_of_appends_in_one_commit_only_those_that_fit_are_kept(tmp_path: Path) -> None:
    """One agent's huge record must not refuse the small ones of its neighbours."""
    journal = SqliteJournal(tmp_path / "j.db", max_pages=60)
    order: list[str] = []

    async def one(name: str, size: int) -> None:
        try:
            await append(journal, patch(name * size))
        except LimitExceededError:
            order.append(f"{name} refused")
        else:
            order.append(f"{name} kept")

    await asyncio.gather(one("a", 10), one("b", 400_000), one("c", 10))
    entries = await journal.read(ACME)
    await journal.close()

    assert order == ["a kept", "b refused", "c kept"]
    assert [entry.record.payload[0] for entry in entries] == ["a", "c"]


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


@pytest.mark.parametrize("content", [b"this is no database" * 400, b"\x00" * 8192])
async def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"j\.db"):
        SqliteJournal(path)

    assert path.read_bytes() == content


async def test_a_damaged_journal_is_refused_and_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = SqliteJournal(path)
    await append(journal, *(patch("x" * 3000) for _ in range(40)))
    await journal.close()
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 : 4096 * 5] = b"\xaa" * 8192
    path.write_bytes(raw)

    with pytest.raises(CorruptDataError):
        SqliteJournal(path)
    assert path.read_bytes() == bytes(raw)


async def test_a_newer_servers_journal_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(InvalidStateError, match="newer"):
        SqliteJournal(path)


async def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    await append(journal, patch("a"))
    with pytest.raises(UnavailableError) as caught:
        SqliteJournal(tmp_path / "j.db")
    await append(journal, patch("b"))
    await journal.close()

    assert caught.value.reason == "JOURNAL_IN_USE"


def kill_after(path: Path, acknowledgements: int) -> list[int]:
    """Runs the writer, kills it after so many acknowledged groups, returns all that it printed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.journal_writer", str(path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(acknowledgements)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    return acknowledged


@pytest.mark.parametrize("seed", range(8))
async def test_a_killed_writer_keeps_every_acknowledged_group_whole_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "j.db"
    chance = random.Random(seed)  # noqa: S311 - to choose a moment, not a secret
    acknowledged = await asyncio.to_thread(kill_after, path, chance.randrange(1, 400))

    journal = SqliteJournal(path)
    found: list[tuple[int, str]] = []
    for number in range(journal_writer.CONVERSATIONS):
        entries = await journal.read(journal_writer.conversation(number))
        found += [(entry.entry_id, entry.record.payload) for entry in entries]
    await journal.close()

    payloads = [payload for _, payload in sorted(found)]
    groups = [payload.split("/")[0] for payload in payloads[:: journal_writer.GROUP]]
    assert set(map(str, acknowledged)) <= set(groups)
    assert groups == [str(n) for n in range(len(groups))]
    assert payloads == [r.payload for n in range(len(groups)) for r in journal_writer.group(n)]
