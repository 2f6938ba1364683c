"""DisplayMessagePersistenceService, levels 2 and 3: repetition, steps, fencing, isolation, order."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import asyncio

import grpc

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2, scope_pb2
from sagentry.plugins.check.answer import Answer
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.cases.display_message_persistence import expect_rows
from sagentry.plugins.check.methods import (
    APPLY_WRITES,
    DISPLAY_MESSAGE_PERSISTENCE,
    LIST_DISPLAY_MESSAGES,
    OPEN_CONVERSATION,
    RESOLVE_TOOL_RESULT,
    SAVE_SYNTHETIC_MESSAGE,
)
from sagentry.plugins.check.owned import (
    OwnedTranscript,
    apply,
    call_item,
    result_item,
    text_item,
)
from sagentry.plugins.check.session import Session

cases = Cases(
    "display_message_persistence", contract=DISPLAY_MESSAGE_PERSISTENCE, level=Level.FAULTS
)

_FENCING = OPEN_CONVERSATION.capability
_LIST = LIST_DISPLAY_MESSAGES.capability
_CHANGE = pb.LIST_ORDER_CHANGE_ASCENDING
_WRITERS = 16
_ROUNDS = 4

_PENDING = display_pb2.TOOL_STATUS_PENDING
_EXECUTING = display_pb2.TOOL_STATUS_EXECUTING
_COMPLETED = display_pb2.TOOL_STATUS_COMPLETED
_FAILED = display_pb2.TOOL_STATUS_FAILED
_INTERRUPTED = display_pb2.TOOL_STATUS_INTERRUPTED
_CANCELLED = display_pb2.TOOL_STATUS_CANCELLED
_TERMINAL = (_COMPLETED, _FAILED, _CANCELLED)


@cases.case("SaveMessage is idempotent: if the message has rows, all of them are returned.")
async def repeated_message_has_its_rows(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    items = [text_item("a"), text_item("b", 1)]
    message_id = session.name("message")
    first = await owned.rows(*items, message_id=message_id)
    for _ in range(2):
        answer = await owned.save(*items, message_id=message_id, request_id="the-same")
        answer.expect(list(answer.ok().saved.display_messages) == first, "the same rows")


@cases.case("Idempotent by message_id as a whole: nothing is written, whatever the items are.")
async def repeated_message_writes_nothing(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    first = await owned.rows(text_item("a"), message_id=message_id)
    answer = await owned.save(text_item("b"), text_item("c", 1), message_id=message_id)
    answer.expect(list(answer.ok().saved.display_messages) == first, "the row of the first save")


@cases.case("A repeated SaveMessage returns the rows as they are now.")
async def repeated_message_has_updated_rows(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    (row,) = await owned.rows(call_item("call-1"), message_id=message_id)
    updated = (await owned.update(row, _EXECUTING)).ok().updated.display_message
    answer = await owned.save(call_item("call-1"), message_id=message_id)
    answer.expect(list(answer.ok().saved.display_messages) == [updated], "the updated row")


@cases.case(
    "SaveSyntheticMessage is idempotent by message_id.",
    needs=(SAVE_SYNTHETIC_MESSAGE.capability,),
)
async def repeated_synthetic_message_is_one_row(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    first = (await owned.synthetic(text_item("a"), message_id)).ok().saved.display_message
    answer = await owned.synthetic(text_item("b"), message_id)
    answer.expect(answer.ok().saved.display_message == first, "the row of the first save")


@cases.case("OpenConversation: repeated with the same epoch it answers again.", needs=(_FENCING,))
async def conversation_opens_again(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for _ in range(2):
        answer = await owned.open()
        answer.expect(answer.ok().WhichOneof("outcome") == "opened", "the outcome opened")


@cases.case("A repeated step changes nothing and answers `updated` with the row as it is.")
async def repeated_step_changes_nothing(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(call_item("call-1"))
    info = display_pb2.ToolInfo(name="search")
    first = (await owned.update(row, _EXECUTING, info)).ok().updated.display_message
    other = display_pb2.ToolInfo(name="other")
    answer = await owned.update(row, _EXECUTING, other)
    answer.expect(answer.ok().updated.display_message == first, "the row of the first step")


async def _reached(
    owned: OwnedTranscript, steps: tuple[display_pb2.ToolStatus.ValueType, ...]
) -> display_pb2.DisplayMessage:
    """Returns a call's row after these steps."""
    (row,) = await owned.rows(call_item("call-1"))
    for status in steps:
        answer = await owned.update(row, status)
        got = answer.ok().updated.display_message
        answer.expect(got.tool_status == status, f"tool_status {status}")
        row = got
    return row


async def _stays(
    owned: OwnedTranscript,
    row: display_pb2.DisplayMessage,
    status: display_pb2.ToolStatus.ValueType,
) -> None:
    answer = await owned.update(row, status, display_pb2.ToolInfo(name="changed"))
    answer.expect(answer.ok().WhichOneof("outcome") == "updated", "the outcome updated")
    answer.expect(answer.ok().updated.display_message == row, f"the row unchanged: {row}")


@cases.case("Pending, executing or interrupted may become completed, failed or cancelled.")
async def open_calls_can_end(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for end in _TERMINAL:
        for steps in ((), (_EXECUTING,), (_INTERRUPTED,), (_EXECUTING, _INTERRUPTED)):
            await _reached(owned, (*steps, end))


@cases.case("Completed, failed and cancelled are terminal: any other step changes nothing.")
async def ended_calls_stay(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for end in _TERMINAL:
        row = await _reached(owned, (end,))
        for status in (_PENDING, _EXECUTING, _INTERRUPTED, *_TERMINAL):
            await _stays(owned, row, status)


@cases.case("An interrupted call may not become executing.")
async def interrupted_call_does_not_execute(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    await _stays(owned, await _reached(owned, (_INTERRUPTED,)), _EXECUTING)


@cases.case("No call becomes pending again.")
async def calls_do_not_become_pending(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for steps in ((_EXECUTING,), (_INTERRUPTED,)):
        await _stays(owned, await _reached(owned, steps), _PENDING)


@cases.case("ToolStatus: new values may appear; a step that is not allowed changes nothing.")
async def unknown_status_changes_nothing(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    row = await _reached(owned, (_EXECUTING,))
    await _stays(owned, row, 99)  # type: ignore[arg-type]  # a value of the future


@cases.case(
    "ResolveToolResult: a row that holds the same content already is not changed.",
    needs=(RESOLVE_TOOL_RESULT.capability,),
)
async def repeated_resolution_changes_nothing(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(result_item("call-1", "waiting", is_interrupt=True))
    first = (await owned.resolve(row, "the answer")).ok().updated.display_message
    answer = await owned.resolve(row, "the answer")
    answer.expect(answer.ok().updated.display_message == first, "the row of the first call")


@cases.case(
    "ResolveToolResult: a row that holds another answer is `no_match`.",
    needs=(RESOLVE_TOOL_RESULT.capability,),
)
async def second_answer_does_not_match(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(result_item("call-1", "waiting", is_interrupt=True))
    (await owned.resolve(row, "the answer")).ok()
    answer = await owned.resolve(row, "another answer")
    answer.expect(answer.ok().WhichOneof("outcome") == "no_match", "the outcome no_match")


async def _taken_over(
    session: Session, *items: display_pb2.DisplayItem
) -> tuple[OwnedTranscript, list[display_pb2.DisplayMessage]]:
    """Returns a conversation, with rows, under an epoch that is no longer the current one."""
    zombie = await OwnedTranscript.opened(session)
    rows = await zombie.rows(*items) if items else []
    await zombie.opened_again(zombie.epoch + 1)
    return zombie, rows


@cases.case(
    "SaveMessage: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(_FENCING,),
    level=Level.CONCURRENCY,
)
async def stale_message_is_refused(session: Session) -> None:
    zombie, _ = await _taken_over(session)
    message_id = session.name("message")
    answer = await zombie.save(text_item("of the zombie"), message_id=message_id)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    (row,) = await zombie.at(zombie.epoch + 1).rows(text_item("new"), message_id=message_id)
    text = row.content.text.text
    answer.expect("zombie" not in text, "nothing of the zombie stored", repr(text))


@cases.case(
    "STALE_EPOCH: metadata has `current_epoch`.", needs=(_FENCING,), level=Level.CONCURRENCY
)
async def stale_epoch_names_the_current(session: Session) -> None:
    zombie, _ = await _taken_over(session)
    answer = await zombie.save(text_item())
    got = answer.error.metadata.get("current_epoch")
    wanted = str(zombie.epoch + 1)
    answer.expect(got == wanted, f"metadata current_epoch {wanted}", repr(got))


@cases.case(
    "A repeated SaveMessage of an earlier owner is refused as well.",
    needs=(_FENCING,),
    level=Level.CONCURRENCY,
)
async def repeated_stale_message_is_refused(session: Session) -> None:
    zombie, (row,) = await _taken_over(session, text_item())
    answer = await zombie.save(text_item(), message_id=row.message_id)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "UpdateToolStatus: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(_FENCING,),
    level=Level.CONCURRENCY,
)
async def stale_update_is_refused(session: Session) -> None:
    zombie, (row,) = await _taken_over(session, call_item("call-1"))
    answer = await zombie.update(row, _EXECUTING)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "OpenConversation: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(_FENCING,),
    level=Level.CONCURRENCY,
)
async def stale_opening_is_refused(session: Session) -> None:
    zombie, _ = await _taken_over(session)
    answer = await zombie.open()
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "ResolveToolResult: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(RESOLVE_TOOL_RESULT.capability, _FENCING),
    level=Level.CONCURRENCY,
)
async def stale_resolution_is_refused(session: Session) -> None:
    zombie, (row,) = await _taken_over(session, result_item("call-1", is_interrupt=True))
    answer = await zombie.resolve(row, "the answer")
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "SaveSyntheticMessage: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(SAVE_SYNTHETIC_MESSAGE.capability, _FENCING),
    level=Level.CONCURRENCY,
)
async def stale_synthetic_message_is_refused(session: Session) -> None:
    zombie, _ = await _taken_over(session)
    answer = await zombie.synthetic(text_item())
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "WriteGroupError: what the status of the single method would have said.",
    needs=(APPLY_WRITES.capability, _FENCING),
    level=Level.CONCURRENCY,
)
async def stale_group_fails_alone(session: Session) -> None:
    zombie, _ = await _taken_over(session)
    owner = await OwnedTranscript.opened(session, zombie.scope)
    answer = await apply(
        session,
        zombie.group(zombie.save_write(text_item())),
        owner.group(owner.save_write(text_item())),
    )
    stale, fresh = answer.ok().applied.results
    facts = {fact.key: fact.value for fact in stale.error.facts}
    answer.expect(
        stale.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        and stale.error.reason == "STALE_EPOCH"
        and facts.get("current_epoch") == str(zombie.epoch + 1),
        "the first group failed with STALE_EPOCH and its current_epoch",
    )
    answer.expect(fresh.WhichOneof("outcome") == "outcomes", "outcomes of the second group")


@cases.case(
    "The context of a group holds: a write in it has none of its own.",
    needs=(APPLY_WRITES.capability,),
    level=Level.CONCURRENCY,
)
async def write_cannot_leave_its_group(session: Session) -> None:
    owned, other = await OwnedTranscript.opened(session), await OwnedTranscript.opened(session)
    write = owned.save_write(text_item("of another tenant"))
    write.save_message.context.CopyFrom(other.context())
    answer = await apply(session, owned.group(write))
    (result,) = answer.ok().applied.results
    for outcome in result.outcomes.outcomes:
        for row in outcome.save_message.saved.display_messages:
            is_own = row.tenant == owned.scope.scoped.tenant
            answer.expect(is_own, f"a row of {owned.scope.scoped.tenant}, or a refusal")


async def _saved(answers: list[Answer[pb.SaveMessageResponse]]) -> list[display_pb2.DisplayMessage]:
    return [row for answer in answers for row in answer.ok().saved.display_messages]


@cases.case("One message saved many times at once has one set of rows.", level=Level.CONCURRENCY)
async def concurrent_saves_are_one(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    items = (text_item("a"), text_item("b", 1))
    answers = await asyncio.gather(
        *(owned.save(*items, message_id=message_id) for _ in range(_WRITERS))
    )
    first = list(answers[0].ok().saved.display_messages)
    for answer in answers:
        answer.expect(list(answer.ok().saved.display_messages) == first, "the same rows")


@cases.case(
    "position and change are taken once, however many write at the same time.",
    level=Level.CONCURRENCY,
)
async def concurrent_rows_have_their_own_places(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    rows = await _saved(await asyncio.gather(*(owned.save(text_item()) for _ in range(_WRITERS))))
    for got in ([row.position for row in rows], [row.change for row in rows]):
        expect_rows(len(set(got)) == len(got), "different values", sorted(got))


@cases.case(
    "Who has seen p never later finds a new value below p (16 writers).",
    needs=(_LIST,),
    level=Level.CONCURRENCY,
)
async def changes_become_visible_in_order(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    writing = True
    seen: list[int] = []

    async def read() -> None:
        while writing:
            await read_once()

    async def read_once() -> None:
        answer = await owned.page(_CHANGE, after=seen[-1] if seen else None, page_size=1000)
        seen.extend(row.change for row in answer.ok().page.display_messages)

    async def write() -> None:
        for _ in range(_ROUNDS):
            (await owned.save(text_item())).ok()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        async with asyncio.TaskGroup() as writers:
            for _ in range(_WRITERS):
                writers.create_task(write())
        writing = False
    await read_once()
    answer = await owned.page(_CHANGE, page_size=1000)
    stored = [row.change for row in answer.ok().page.display_messages]
    answer.expect(
        seen == stored, "each row once to who reads on from the last one", f"{seen}; all: {stored}"
    )


async def _is_hidden(owner: OwnedTranscript, *others: scope_pb2.Scope) -> None:
    """Each other scope sees no row of the owner and can change none."""
    (row,) = await owner.rows(call_item("call-1"))
    for scope in others:
        other = await owner.of(scope).at(0).opened_again(1)
        answer = await other.update(row, _EXECUTING)
        answer.expect(answer.ok().WhichOneof("outcome") == "no_match", "the outcome no_match")
        (mine,) = await other.rows(call_item("call-1"), message_id=row.message_id)
        expect_rows(
            (mine.tenant, mine.partition) == (scope.scoped.tenant, scope.scoped.partition),
            f"a row of {scope}",
            mine,
        )
        if _LIST in owner.session.capabilities:
            listed = await owner.page()
            got = list(listed.ok().page.display_messages)
            listed.expect(got == [row], "the owner's row and no other")
    again = await owner.save(call_item("call-1"), message_id=row.message_id)
    again.expect(list(again.ok().saved.display_messages) == [row], "the owner's row unchanged")


@cases.case(
    "Keys are (tenant, partition, conversation_id): tenants do not meet.", level=Level.CONCURRENCY
)
async def tenants_do_not_meet(session: Session) -> None:
    await _is_hidden(await OwnedTranscript.opened(session), session.scope())


@cases.case(
    "Keys are (tenant, partition, conversation_id): partitions do not meet.",
    level=Level.CONCURRENCY,
)
async def partitions_do_not_meet(session: Session) -> None:
    scope = session.scope(partition="user-1")
    tenant = scope.scoped.tenant
    others = (session.scope(tenant, "user-2"), session.scope(tenant))
    await _is_hidden(await OwnedTranscript.opened(session, scope), *others)


@cases.case(
    "Nothing that a tenant owns can be seen through the unscoped namespace.",
    level=Level.CONCURRENCY,
)
async def unscoped_sees_no_tenant(session: Session) -> None:
    unscoped = scope_pb2.Scope(unscoped=scope_pb2.Unscoped())
    await _is_hidden(await OwnedTranscript.opened(session), unscoped)


@cases.case(
    "The identity of a scope is a pair, compared as text: joined forms do not collide.",
    level=Level.CONCURRENCY,
)
async def joined_identities_do_not_collide(session: Session) -> None:
    tenant = session.name("tenant")
    for joint in "/:|,.-_#":
        first = session.scope(f"{tenant}{joint}a", "b")
        second = session.scope(tenant, f"a{joint}b")
        await _is_hidden(await OwnedTranscript.opened(session, first), second)


@cases.case(
    "Everything is keyed by conversation_id: conversations do not meet.", level=Level.CONCURRENCY
)
async def conversations_do_not_meet(session: Session) -> None:
    owner = await OwnedTranscript.opened(session)
    other = await OwnedTranscript.opened(session, owner.scope)
    (row,) = await owner.rows(text_item("first"))
    (mine,) = await other.rows(text_item("second"), message_id=row.message_id)
    expect_rows(mine.conversation_id == other.conversation_id, "a row of its own", mine)
