"""The journal: appends a second with group commit, against a commit for each append. One run, ratios."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.journal import rows, writer
from sagentry.server.journal.schema import JournalFile
from sagentry.server.journal.sqlite_journal import SqliteJournal
from sagentry.server.ports import JournalRecord

TEXT = "x" * 1600
APPENDERS = 64
RECORDS = (JournalRecord("patch", 1, 1, TEXT), JournalRecord("display", 1, 0, TEXT))


def conversation(number: int) -> ConversationKey:
    return ConversationKey(ScopeKey(ScopeKind.SCOPED, "acme"), f"c-{number}")


@dataclass(frozen=True)
class Rate:
    """Appends a second and how many of them shared a commit."""

    appends: float
    shared: float


def bare_commits(path: Path, appends: int, *, fsync: bool) -> Rate:
    """A commit for each append in a loop: what the disk and SQLite take, without a thread or a caller."""
    file = JournalFile(path, fsync=fsync)
    began = time.perf_counter()
    for number in range(appends):
        first = 1 + len(RECORDS) * number
        file.writing.execute("BEGIN IMMEDIATE")
        rows.insert(
            file.writing,
            [
                (first + index, conversation(number % APPENDERS), "a", record, len(TEXT))
                for index, record in enumerate(RECORDS)
            ],
        )
        file.writing.execute("COMMIT")
    elapsed = time.perf_counter() - began
    file.close()
    return Rate(appends / elapsed, 1.0)


async def group_commit(
    path: Path, appends: int, *, appenders: int, fsync: bool, removes: bool = False
) -> Rate:
    """Appenders that each wait for their append before the next; the removals come on top."""
    journal = SqliteJournal(path, fsync=fsync)
    numbers = iter(range(appends))

    async def appender(index: int) -> None:
        for _ in numbers:
            durable = asyncio.get_running_loop().create_future()

            def on_durable(
                entry_ids: Sequence[int],
                error: Exception | None,
                durable: asyncio.Future[Sequence[int]] = durable,
            ) -> None:
                if error is not None:
                    raise error
                durable.set_result(entry_ids)

            journal.append(conversation(index), "a", RECORDS, on_durable=on_durable)
            entry_ids = await durable
            if removes:
                journal.remove(entry_ids)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for index in range(appenders):
            tasks.create_task(appender(index))
    elapsed = time.perf_counter() - began
    shared = appends / journal.commits
    await journal.close()
    return Rate(appends / elapsed, shared)


def measure(folder: Path, appends: int, *, fsync: bool) -> None:
    word = "on" if fsync else "off"
    paths = (folder / f"{word}-{number}.db" for number in range(100))
    bare = bare_commits(next(paths), appends, fsync=fsync)
    print(f"fsync {word}: bare loop, a commit each: {bare.appends:.0f} appends/s")

    grouped, writer.BATCH = writer.BATCH, 1
    base = asyncio.run(group_commit(next(paths), appends, appenders=APPENDERS, fsync=fsync))
    writer.BATCH = grouped
    print(f"fsync {word}: {APPENDERS} appenders, a commit each: {base.appends:.0f} appends/s")

    for appenders, removes in ((1, False), (8, False), (APPENDERS, False), (APPENDERS, True)):
        rate = asyncio.run(
            group_commit(next(paths), appends, appenders=appenders, fsync=fsync, removes=removes)
        )
        print(
            f"fsync {word}: {appenders} appenders{', removing' if removes else ''}, group commit: "
            f"{rate.appends:.0f} appends/s, {rate.shared:.1f} a commit, "
            f"{rate.appends / base.appends:.1f} times"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6000, help="appends of 2 records of 1.6 KB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        for fsync in (True, False):
            measure(Path(name), options.rows, fsync=fsync)


if __name__ == "__main__":
    main()
