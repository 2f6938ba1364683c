from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.plugins.sdk import (
    OverloadedError,
    PluginError,
    QuotaExceededError,
    RevisionConflictError,
    StateCorruptError,
)
from sagentry.plugins.sql import StoreOptions, state
from tests.support.stored import Opened, append, call, listed, opened, persist, save, text

pytestmark = pytest.mark.anyio

LOAD = agent_pb.LoadStateRequest()
CLAIM = agent_pb.LoadStateRequest(claim=agent_pb.StateClaim(owner_id="server"))
LARGE = "x" * 256 * 1024


def limit_pages(store: Opened, pages: int) -> None:
    """Makes the disk full: SQLite refuses to grow the file beyond that."""
    with store.store.database.writing.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount
        connection.commit()


async def with_state(store: Opened) -> None:
    await store.states.PersistState(persist(1, '{"v":1}'), call())
    for revision in (2, 3):
        await store.states.AppendState(append(revision, '["patch"]'), call())


async def test_a_full_disk_is_a_quota_and_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        limit_pages(store, 40)
        with pytest.raises(PluginError) as refusal:
            await store.rows.SaveMessage(save("m", text("first"), text(LARGE)), call())
        await store.rows.SaveMessage(save("small", text("fits")), call())
        rows = await listed(store)

    assert refusal.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.value.reason == "QUOTA_EXCEEDED"
    assert refusal.value.retry_after is not None
    assert [(row.message_id, row.position) for row in rows] == [("small", 1)]


async def test_a_group_that_fills_the_disk_leaves_the_others_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        limit_pages(store, 40)
        request = display_pb.ApplyWritesRequest()
        for name, content in (("a", "fits"), ("b", LARGE), ("c", "fits")):
            group = request.groups.add()
            group.context.scope.scoped.tenant = "acme"
            group.context.conversation_id, group.context.request_id = name, name
            group.writes.add().save_message.CopyFrom(save("m", text(content)))
        response = await store.rows.ApplyWrites(request, call())

    results = response.applied.results
    assert [result.WhichOneof("outcome") for result in results] == ["outcomes", "error", "outcomes"]
    assert results[1].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


async def test_a_locked_database_is_overloaded(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with (
        opened(path, StoreOptions(busy_seconds=0.01)) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OverloadedError) as refusal:
            await store.rows.SaveMessage(save("m", text("hello")), call())
        other.execute("ROLLBACK")
        await store.rows.SaveMessage(save("m", text("hello")), call())

    assert refusal.value.retry_after is not None
    assert "locked" not in refusal.value.message


@contextmanager
def failing(store: Opened, name: str) -> Iterator[None]:
    class Broken(sqlite3.OperationalError):
        sqlite_errorname = name

    def fail(*_: object) -> None:
        raise Broken("of /secret/path")

    event.listen(store.store.database.writing, "before_cursor_execute", fail)
    yield
    event.remove(store.store.database.writing, "before_cursor_execute", fail)


@pytest.mark.parametrize(
    ("name", "code", "retries"),
    [
        ("SQLITE_IOERR_WRITE", grpc.StatusCode.UNAVAILABLE, True),
        ("SQLITE_READONLY_DBMOVED", grpc.StatusCode.UNAVAILABLE, True),
        ("SQLITE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, True),
        ("SQLITE_TOOBIG", grpc.StatusCode.RESOURCE_EXHAUSTED, False),
    ],
)
async def test_a_failure_of_the_database_is_typed_and_says_nothing_of_it(
    tmp_path: Path, name: str, code: grpc.StatusCode, *, retries: bool
) -> None:
    with opened(tmp_path / "s.db") as store:
        with failing(store, name), pytest.raises(PluginError) as refusal:
            await store.rows.SaveMessage(save("m", text("hello")), call())
        await store.rows.SaveMessage(save("m", text("hello")), call())

    assert refusal.value.code is code
    assert (refusal.value.retry_after is not None) is retries
    assert "secret" not in refusal.value.message


async def test_an_unknown_failure_is_no_refusal(tmp_path: Path) -> None:
    """It is a bug: the SDK answers INTERNAL with an error id, and the log has the rest."""
    with opened(tmp_path / "s.db") as store, failing(store, "SQLITE_MISUSE"):
        with pytest.raises(DBAPIError):
            await store.rows.SaveMessage(save("m", text("hello")), call())
        request = display_pb.ApplyWritesRequest()
        group = request.groups.add()
        group.context.scope.scoped.tenant = "acme"
        group.context.conversation_id, group.context.request_id = "c", "r"
        group.writes.add().save_message.CopyFrom(save("m", text("hello")))
        response = await store.rows.ApplyWrites(request, call())

    (result,) = response.applied.results
    assert (result.error.code, result.error.reason) == (13, "INTERNAL")
    assert "secret" not in result.error.message


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE state_bases SET state = '{\"v\":2}'",
        "UPDATE state_bases SET state = CAST('{' AS BLOB)",
        "UPDATE state_bases SET state = CAST(X'FF00FF' AS TEXT)",
        "DELETE FROM state_bases",
        "UPDATE state_patches SET patch = '[]' WHERE revision = 2",
        "DELETE FROM state_patches WHERE revision = 2",
        "DELETE FROM state_patches WHERE revision = 3",
    ],
)
@pytest.mark.parametrize("request_", [LOAD, CLAIM], ids=["load", "claim"])
async def test_a_damaged_state_is_data_loss_and_nothing_is_claimed(
    tmp_path: Path, statement: str, request_: agent_pb.LoadStateRequest
) -> None:
    path = tmp_path / "s.db"
    with opened(path) as store:
        await with_state(store)
        damage(path, statement)
        with pytest.raises(PluginError) as refusal:
            await store.states.LoadState(request_, call())
    with closing(sqlite3.connect(path)) as connection:
        epoch = connection.execute("SELECT state_epoch, owner_id FROM conversations").fetchone()

    assert refusal.value.code is grpc.StatusCode.DATA_LOSS
    assert refusal.value.reason == "STATE_CORRUPT"
    assert epoch == (0, "")


async def test_a_state_mended_by_hand_loads_without_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with opened(path) as store:
        await with_state(store)
        damage(path, "UPDATE state_bases SET state = '{\"v\":2}', checksum = NULL")
        response = await store.states.LoadState(LOAD, call())

    assert response.found.base.json == '{"v":2}'


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE display_messages SET content = '{\"text\":'",
        "UPDATE display_messages SET content = '{\"no_such_arm\":{}}'",
        'UPDATE display_messages SET content = \'{"text":{"no_such_field":1}}\'',
        'UPDATE display_messages SET content = \'{"text":{"text":1}}\'',
        'UPDATE display_messages SET content = \'{"text":{"text":"\\ud800"}}\'',
        "UPDATE display_messages SET content = '[]'",
        "UPDATE display_messages SET type = 'nobody'",
        "UPDATE display_messages SET exact = X'FFFF'",
        "UPDATE display_messages SET content = CAST(X'FF00FF' AS TEXT)",
    ],
)
async def test_a_damaged_row_is_data_loss(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "s.db"
    with opened(path) as store:
        await store.rows.SaveMessage(save("m", text("hello")), call())
        damage(path, statement)
        with pytest.raises(PluginError) as refusal:
            await listed(store)

    assert refusal.value.code is grpc.StatusCode.DATA_LOSS
    assert refusal.value.reason == "STATE_CORRUPT"


async def test_a_damaged_page_is_data_loss(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with opened(path) as store:
        for number in range(200):
            await store.rows.SaveMessage(save(f"m{number}", text("x" * 2000)), call())
    content = bytearray(path.read_bytes())
    for page in range(20, len(content) // 4096 - 1):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)

    with opened(path) as store, pytest.raises(PluginError) as refusal:
        await listed(store)

    assert refusal.value.code is grpc.StatusCode.DATA_LOSS


async def test_a_write_to_a_damaged_database_waits_until_it_is_mended(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "s.db") as store,
        failing(store, "SQLITE_CORRUPT"),
        pytest.raises(OverloadedError) as refusal,
    ):
        await store.rows.SaveMessage(save("m", text("hello")), call())

    assert refusal.value.retry_after is not None


async def test_a_state_that_could_not_be_loaded_again_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store, pytest.raises(QuotaExceededError) as refusal:
        await store.states.PersistState(persist(1, "x" * state.MAX_STATE_BYTES), call())

    assert refusal.value.retry_after is None
    assert refusal.value.facts["limit"] == str(state.MAX_STATE_BYTES)


async def test_patches_that_would_outgrow_an_answer_need_a_full_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_STATE_BYTES", 1000)
    with opened(tmp_path / "s.db") as store:
        await store.states.PersistState(persist(1, "x" * 500), call())
        fits = await store.states.AppendState(append(2, "x" * 200), call())
        full = await store.states.AppendState(append(3, "x" * 200), call())

    assert fits.WhichOneof("outcome") == "saved"
    assert full.needs_full.current_revision == 2


async def test_a_state_of_this_revision_by_an_earlier_owner_is_a_conflict(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        await store.states.PersistState(persist(1), call(epoch=1))
        with pytest.raises(RevisionConflictError):
            await store.states.PersistState(persist(1), call(epoch=2))


async def test_an_epoch_that_was_never_claimed_here_is_kept(tmp_path: Path) -> None:
    """After a restored backup no claim may give an epoch that somebody has already."""
    with opened(tmp_path / "s.db") as store:
        await store.states.PersistState(persist(1), call(epoch=7))
        response = await store.states.LoadState(CLAIM, call())

    assert response.found.owner_epoch == 8


async def test_a_document_that_is_no_json_text_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store, pytest.raises(PluginError) as refusal:
        await store.states.PersistState(persist(1, '{"a":"\0"}'), call())

    assert refusal.value.violations[0][0] == "state.json"


async def test_the_limit_of_an_answer_is_kept_before_anything_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sagentry.plugins.sql.store.MAX_ANSWER_BYTES", 1000)
    with opened(tmp_path / "s.db") as store:
        with pytest.raises(QuotaExceededError):
            await store.rows.SaveMessage(save("m", text("x" * 2000)), call())
        request = display_pb.ApplyWritesRequest()
        for name in ("a", "b"):
            group = request.groups.add()
            group.context.scope.scoped.tenant = "acme"
            group.context.conversation_id, group.context.request_id = name, name
            group.writes.add().save_message.CopyFrom(save("m", text("x" * 600)))
        response = await store.rows.ApplyWrites(request, call())
        rows = [len(await listed(store, conversation=name)) for name in ("c", "a", "b")]

    assert response.applied.results[0].WhichOneof("outcome") == "outcomes"
    assert response.applied.results[1].error.reason == "QUOTA_EXCEEDED"
    assert rows == [0, 1, 0]


async def test_corrupt_names_only_its_own_conversation(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with opened(path) as store:
        await store.states.PersistState(persist(1), call("good"))
        await store.states.PersistState(persist(1), call("bad"))
        damage(
            path,
            "UPDATE state_bases SET state = 'x' WHERE conversation_key ="
            " (SELECT conversation_key FROM conversations WHERE conversation_id = ?)",
            "bad",
        )
        with pytest.raises(StateCorruptError) as refusal:
            await store.states.LoadState(LOAD, call("bad"))
        good = await store.states.LoadState(LOAD, call("good"))

    assert refusal.value.facts == {"conversation_id": "bad"}
    assert good.HasField("found")
