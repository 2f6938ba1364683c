"""What a journal says is on disk is there after kill -9, whatever the moment."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import journal_writer
from tests.support.journals import opened
from tests.support.repository import ROOT


def kill_after(path: Path, acknowledgements: int) -> list[int]:
    """Runs the writer, kills it after so many acknowledged groups, returns all that it printed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.journal_writer", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(acknowledgements)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    return acknowledged


@pytest.mark.parametrize("seed", range(12))
async def test_a_killed_writer_keeps_every_acknowledged_group_whole_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    """A removed group may come back; a removal takes nothing but its own group, and all of it."""
    path = tmp_path / "j.db"
    chance = random.Random(seed)
    acknowledged = await asyncio.to_thread(kill_after, path, chance.randrange(1, 600))

    found: list[tuple[int, str]] = []
    async with opened(path) as journal:
        for number in range(journal_writer.CONVERSATIONS):
            entries = await journal.read(journal_writer.conversation(number))
            assert [e.entry_id for e in entries] == sorted(e.entry_id for e in entries)
            found += [(entry.entry_id, entry.record.payload) for entry in entries]
        counted = (journal.total_entries, journal.total_bytes)

    payloads = [payload for _, payload in sorted(found)]
    groups = [int(payload.split("/")[0]) for payload in payloads[:: journal_writer.GROUP]]
    kept = {number for number in acknowledged if not journal_writer.is_removed(number)}
    assert kept <= set(groups)
    # Written in order, so what was not acknowledged is a beginning of the rest; no gap but removals.
    missing = set(range(max(groups, default=0))) - set(groups)
    assert all(journal_writer.is_removed(number) for number in missing)
    assert missing <= set(acknowledged)
    assert groups == sorted(groups)
    assert payloads == [record.payload for n in groups for record in journal_writer.group(n)]
    assert acknowledged == list(range(len(acknowledged)))
    assert counted == (len(payloads), sum(map(len, payloads)))
    assert max(Counter(groups).values(), default=1) == 1
