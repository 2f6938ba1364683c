from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from sagentry.plugins.check import attached
from sagentry.plugins.check.owned import OwnedState, OwnedTranscript, epoch_of, text_item
from tests.support.sql_store import store_target

pytestmark = pytest.mark.anyio


async def test_a_call_repeated_after_a_kill_before_its_answer_is_answered_and_done_once(
    tmp_path: Path,
) -> None:
    database, mark = tmp_path / "s.db", tmp_path / "die"
    dying = store_target(database, "--while", str(mark), module="tests.support.dying_store")
    async with attached(dying) as session:
        scope = session.scope()
        owned = await OwnedTranscript.opened(session, scope)
        state = await OwnedState.claimed(session, scope)
        (before,) = await owned.rows(text_item("before"))
        mark.touch()
        lost = await owned.save(text_item("hello"), message_id="m", request_id="r")
    async with attached(store_target(database)) as session:
        owned = OwnedTranscript(
            session=session, scope=scope, conversation_id=owned.conversation_id, epoch=owned.epoch
        )
        again = await owned.save(text_item("hello"), message_id="m", request_id="r")
        once_more = await owned.save(text_item("hello"), message_id="m", request_id="r")
        listed = (await owned.page()).ok().page.display_messages

    assert lost.code is grpc.StatusCode.UNAVAILABLE
    assert not mark.exists()
    assert list(again.ok().saved.display_messages) == list(once_more.ok().saved.display_messages)
    assert list(listed) == [before, *again.ok().saved.display_messages]
    assert [row.position for row in listed] == [1, 2]
    assert state.epoch == 1


async def test_a_claim_repeated_after_a_kill_before_its_answer_has_the_same_epoch(
    tmp_path: Path,
) -> None:
    database, mark = tmp_path / "s.db", tmp_path / "die"
    dying = store_target(database, "--while", str(mark), module="tests.support.dying_store")
    async with attached(dying) as session:
        state = await OwnedState.claimed(session)
        (await state.persist(1, '{"v":1}', release=True)).ok()
        mark.touch()
        lost = await state.claim("server-b", "r")
    async with attached(store_target(database)) as session:
        state = OwnedState(
            session=session, scope=state.scope, conversation_id=state.conversation_id
        )
        again = await state.claim("server-b", "r")
        loaded = await state.load()

    assert lost.code is grpc.StatusCode.UNAVAILABLE
    found = again.ok().found
    assert (epoch_of(again.ok()), found.previous_owner, found.released) == (2, "judge", True)
    assert epoch_of(loaded.ok()) == 2
