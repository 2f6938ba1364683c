from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from sagentry.plugins.sdk import InvalidFieldError, OverloadedError
from sagentry.plugins.sql import StoreOptions
from sagentry.plugins.sql.database import open_database
from sagentry.plugins.sql.writer import MAX_BATCH, Work, Writer
from tests.support.stored import call, listed, opened, save
from tests.support.stored import text as text_of

pytestmark = pytest.mark.anyio


class Gate:
    """Holds the writer inside a transaction, so that what comes meanwhile is one batch."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def work(self) -> Work[str]:
        def run(_connection: Connection) -> str:
            self.entered.set()
            assert self.open.wait(10)
            return "held"

        return Work(run=run)


@contextmanager
def writing(database: Path, *, max_waiting: int = 2048) -> Iterator[tuple[Writer, list[int]]]:
    commits: list[int] = []
    opened_database = open_database(str(database))
    writer = Writer(opened_database.writing, max_waiting=max_waiting, on_commit=commits.append)
    writer.start()
    try:
        yield writer, commits
    finally:
        writer.close()
        opened_database.close()


def counted(connection: Connection) -> int:
    return int(connection.execute(text("SELECT count(*) FROM conversations")).scalar_one())


def insert(name: str) -> Work[str]:
    def run(connection: Connection) -> str:
        connection.exec_driver_sql(
            "INSERT INTO conversations VALUES (NULL, 'scoped', ?, '', 'c', 0, '', 0, NULL, '', 0,"
            " 0, 0, 0, NULL, 0, 0, 0, 0, 0, '2026-01-01 00:00:00.000000', NULL, NULL)",
            (name,),
        )
        return name

    return Work(run=run)


async def test_writes_that_wait_together_are_one_commit(tmp_path: Path) -> None:
    gate, count = Gate(), 200
    with writing(tmp_path / "s.db") as (writer, commits):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        waiting = asyncio.gather(*(writer.write(insert(f"t{n}")) for n in range(count)))
        await asyncio.sleep(0)
        gate.open.set()
        await held
        done = await waiting

    assert done == [f"t{n}" for n in range(count)]
    assert commits == [1, count]


async def test_a_batch_has_a_limit(tmp_path: Path) -> None:
    gate = Gate()
    with writing(tmp_path / "s.db") as (writer, commits):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        rest = asyncio.gather(writer.write_all([insert(f"t{n}") for n in range(MAX_BATCH + 1)]))
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(held, rest)

    assert commits == [1, MAX_BATCH, 1]


async def test_sixteen_callers_need_far_fewer_commits_than_writes(tmp_path: Path) -> None:
    commits: list[int] = []
    begun: list[object] = []
    with opened(tmp_path / "s.db", StoreOptions(on_commit=commits.append)) as store:
        event.listen(store.store.database.writing, "commit", begun.append)

        async def write(caller: int) -> None:
            for number in range(16):
                request = save(f"m-{caller}-{number}", text_of("hello"))
                await store.rows.SaveMessage(request, call())

        await asyncio.gather(*(write(caller) for caller in range(16)))
        rows = await listed(store)

    assert len(rows) == sum(commits) == 256
    assert len(begun) == len(commits) < 128


async def test_what_one_work_refuses_leaves_its_batch_mates_alone(tmp_path: Path) -> None:
    def refuses(connection: Connection) -> None:
        insert("refused").run(connection)
        raise InvalidFieldError("field", "wrong")

    def breaks(connection: Connection) -> None:
        insert("broken").run(connection)
        raise ZeroDivisionError

    gate = Gate()
    with writing(tmp_path / "s.db") as (writer, _):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        works: list[Work[Any]] = [
            insert("first"),
            Work(run=refuses),
            Work(run=breaks),
            insert("last"),
        ]
        batch = asyncio.gather(writer.write_all(works))
        await asyncio.sleep(0)
        gate.open.set()
        await held
        (done,) = await batch
        count = await writer.write(Work(run=counted))

    assert [type(each) for each in done] == [str, InvalidFieldError, ZeroDivisionError, str]
    assert count == 2


async def test_what_the_database_refuses_leaves_its_batch_mates_alone(tmp_path: Path) -> None:
    gate = Gate()
    with writing(tmp_path / "s.db") as (writer, commits):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        batch = asyncio.gather(
            writer.write_all([insert("a"), insert("b"), insert("a"), insert("c")])
        )
        await asyncio.sleep(0)
        gate.open.set()
        await held
        (done,) = await batch
        count = await writer.write(Work(run=counted))

    assert [isinstance(each, str) for each in done] == [True, True, False, True]
    assert count == 3
    assert commits[1:] == [1, 1, 1, 1]


async def test_more_than_may_wait_is_refused_at_once(tmp_path: Path) -> None:
    gate = Gate()
    with writing(tmp_path / "s.db", max_waiting=2) as (writer, _):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        waiting = asyncio.gather(*(writer.write(insert(f"t{n}")) for n in range(2)))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as refusal:
            await writer.write(insert("too many"))
        gate.open.set()
        await asyncio.gather(held, waiting)

    assert refusal.value.retry_after is not None


async def test_a_write_whose_time_is_over_when_its_turn_comes_is_dropped(tmp_path: Path) -> None:
    with writing(tmp_path / "s.db") as (writer, _):
        late = insert("late")
        late.expires = time.monotonic()
        with pytest.raises(OverloadedError):
            await writer.write(late)
        count = await writer.write(Work(run=counted))

    assert count == 0


async def test_a_cancelled_write_is_dropped_before_it_begins(tmp_path: Path) -> None:
    gate = Gate()
    with writing(tmp_path / "s.db") as (writer, _):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        cancelled = asyncio.gather(writer.write(insert("cancelled")))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.open.set()
        await held
        count = await writer.write(Work(run=counted))

    assert count == 0


async def test_a_cancelled_write_that_has_begun_is_committed(tmp_path: Path) -> None:
    gate = Gate()

    def run(connection: Connection) -> str:
        gate.work().run(connection)
        return insert("begun").run(connection)

    with writing(tmp_path / "s.db") as (writer, _):
        cancelled = asyncio.gather(writer.write(Work(run=run)))
        await asyncio.to_thread(gate.entered.wait)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.open.set()
        count = await writer.write(Work(run=counted))

    assert count == 1


async def test_closing_commits_what_waits_and_refuses_what_comes(tmp_path: Path) -> None:
    gate = Gate()
    with writing(tmp_path / "s.db") as (writer, commits):
        held = asyncio.gather(writer.write(gate.work()))
        await asyncio.to_thread(gate.entered.wait)
        waiting = asyncio.gather(writer.write(insert("waits")))
        await asyncio.sleep(0)
        closing = asyncio.gather(asyncio.to_thread(writer.close))
        gate.open.set()
        done = await asyncio.gather(held, waiting, closing)
        with pytest.raises(OverloadedError):
            await writer.write(insert("late"))

    assert done[1][0] == "waits"
    assert sum(commits) == 2


async def test_lists_do_not_wait_for_writes(tmp_path: Path) -> None:
    gate = Gate()
    with opened(tmp_path / "s.db") as store:
        await store.rows.SaveMessage(save("m", text_of("hello")), call())
        held = asyncio.gather(store.store.write_all([gate.work()]))
        await asyncio.to_thread(gate.entered.wait)
        rows = await listed(store)
        gate.open.set()
        await held

    assert [row.content.text.text for row in rows] == ["hello"]
