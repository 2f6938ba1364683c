"""Appends groups to a journal until it is killed; prints the number of each group that is on disk.

Every third group is removed once it is on disk, as if a plugin had acknowledged it.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from sagentry.server.domain.scope import ConversationKey, ScopeKey, ScopeKind
from sagentry.server.journal.sqlite_journal import SqliteJournal
from sagentry.server.ports import JournalRecord

CONVERSATIONS = 4
GROUP = 3


def conversation(number: int) -> ConversationKey:
    """The conversation that a group belongs to."""
    return ConversationKey(ScopeKey(ScopeKind.SCOPED, "acme"), f"c{number % CONVERSATIONS}")


def group(number: int) -> list[JournalRecord]:
    """The records of a group: each says which one it is and how long the group is."""
    return [JournalRecord("patch", 1, number, f"{number}/{part}/{GROUP}") for part in range(GROUP)]


def is_removed(number: int) -> bool:
    """Whether a group is removed once it is on disk."""
    return number % 3 == 0


async def main(path: Path) -> None:
    journal = SqliteJournal(path)
    ahead = asyncio.Semaphore(200)

    def durable(number: int, entry_ids: Sequence[int], error: Exception | None) -> None:
        ahead.release()
        if error is None:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            if is_removed(number):
                journal.remove(entry_ids)

    for number in range(1_000_000):
        await ahead.acquire()
        journal.append(
            conversation(number), "a", group(number), on_durable=functools.partial(durable, number)
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
