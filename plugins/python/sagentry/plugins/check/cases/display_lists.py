"""DisplayMessagePersistenceService: lists of rows, and groups of writes."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import grpc

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.plugins.check.answer import Answer
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.methods import (
    APPLY_WRITES,
    DISPLAY_MESSAGE_PERSISTENCE,
    LIST_DISPLAY_MESSAGES,
    RESOLVE_TOOL_RESULT,
    SAVE_SYNTHETIC_MESSAGE,
)
from sagentry.plugins.check.owned import (
    OwnedTranscript,
    apply,
    call_item,
    result_content,
    result_item,
    text_item,
)
from sagentry.plugins.check.session import Session

cases = Cases(
    "display_message_persistence", contract=DISPLAY_MESSAGE_PERSISTENCE, level=Level.REQUIRED
)

_LIST = LIST_DISPLAY_MESSAGES.capability
_APPLY = APPLY_WRITES.capability
_ASCENDING = pb.LIST_ORDER_POSITION_ASCENDING
_DESCENDING = pb.LIST_ORDER_POSITION_DESCENDING
_CHANGE = pb.LIST_ORDER_CHANGE_ASCENDING
_MAX_PAGE_BYTES = 1024 * 1024
_LARGE = 400 * 1024
_HUGE = 1200 * 1024
_UNKNOWN_WRITE = b"\xc2\x94\x0e\x08\x0a\x06future"  # an arm of the future, field 29000

TEXTS = (
    "plain",
    "👩‍💻 emoji of several code points",
    "שלום عالم right to left",
    "e\u0301 combining, \u200d joiner, \ufeff mark",
    "NUL \0 inside",
    "\ud7ff\ue000\U0010ffff at the edges",
    " white space \t\r\n kept ",
    "'; DROP TABLE display_messages; --",
    "",
)


async def _positions(answer: Answer[pb.ListDisplayMessagesResponse]) -> list[int]:
    answer.expect(answer.ok().WhichOneof("outcome") == "page", "the outcome page")
    return [row.position for row in answer.ok().page.display_messages]


async def _five(session: Session) -> tuple[OwnedTranscript, list[display_pb2.DisplayMessage]]:
    """Returns a conversation with five rows; the first one was changed last."""
    owned = await OwnedTranscript.opened(session)
    rows = [(await owned.rows(call_item("call-1")))[0]]
    for number in range(4):
        rows += await owned.rows(text_item(f"text {number}"))
    updated = (await owned.update(rows[0], display_pb2.TOOL_STATUS_EXECUTING)).ok().updated
    rows[0] = updated.display_message
    return owned, rows


@cases.case("LIST_ORDER_POSITION_ASCENDING: by position, first row first.", needs=(_LIST,))
async def list_is_by_position(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_ASCENDING)
    wanted = [row.position for row in rows]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")


@cases.case("LIST_ORDER_POSITION_DESCENDING: by position, last row first.", needs=(_LIST,))
async def list_is_by_position_backwards(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_DESCENDING)
    wanted = [row.position for row in reversed(rows)]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")


@cases.case("LIST_ORDER_CHANGE_ASCENDING: by change, oldest change first.", needs=(_LIST,))
async def list_is_by_change(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_CHANGE)
    wanted = [row.position for row in (*rows[1:], rows[0])]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")


@cases.case(
    "What the store answers is what readers get: a list has the rows as they are now.",
    needs=(_LIST,),
)
async def list_has_the_rows(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page()
    got = list(answer.ok().page.display_messages)
    answer.expect(got == rows, "the rows as they were answered")


@cases.case("after: rows strictly after this position, in the order's direction.", needs=(_LIST,))
async def list_begins_after_a_position(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_ASCENDING, after=rows[2].position)
    wanted = [row.position for row in rows[3:]]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")
    answer = await owned.page(_DESCENDING, after=rows[2].position)
    wanted = [row.position for row in reversed(rows[:2])]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")


@cases.case("after: rows strictly after this change: what a reader has missed.", needs=(_LIST,))
async def list_begins_after_a_change(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_CHANGE, after=rows[4].change)
    wanted = [rows[0].position]
    answer.expect(await _positions(answer) == wanted, f"positions {wanted}")


@cases.case("after: 0 begins at the first row; after the last one nothing follows.", needs=(_LIST,))
async def list_has_ends(session: Session) -> None:
    owned, rows = await _five(session)
    answer = await owned.page(_ASCENDING, after=0)
    answer.expect(len(await _positions(answer)) == len(rows), f"{len(rows)} rows")
    answer = await owned.page(_ASCENDING, after=rows[-1].position)
    answer.expect(not await _positions(answer), "no rows")
    answer.expect(not answer.ok().page.has_more, "has_more false")


@cases.case("page_size: most rows of the page; has_more says whether rows follow.", needs=(_LIST,))
async def pages_have_a_size(session: Session) -> None:
    owned, rows = await _five(session)
    wanted = [row.position for row in rows]
    for order, expected in ((_ASCENDING, wanted), (_DESCENDING, wanted[::-1])):
        seen: list[int] = []
        for is_last in (False, False, True):
            answer = await owned.page(order, after=seen[-1] if seen else None, page_size=2)
            seen += await _positions(answer)
            answer.expect(answer.ok().page.has_more is not is_last, f"has_more {not is_last}")
        answer.expect(seen == expected, f"positions {expected}", str(seen))


@cases.case("page_size: 0 means 100.", needs=(_LIST,))
async def pages_have_100_rows(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for _ in range(6):
        await owned.rows(*(text_item(f"text {number}", number) for number in range(20)))
    answer = await owned.page()
    count = len(await _positions(answer))
    answer.expect(count == 100 and answer.ok().page.has_more, "100 rows", f"{count} rows")  # noqa: PLR2004  the contract's


@cases.case("ListDisplayMessages only reads: repeated, it answers the same.", needs=(_LIST,))
async def list_only_reads(session: Session) -> None:
    owned, _ = await _five(session)
    first = await owned.page(_CHANGE)
    again = await owned.page(_CHANGE)
    again.expect(again.ok().page == first.ok().page, "the same page")


@cases.case("A conversation that is not known has no rows.", needs=(_LIST,))
async def unknown_conversation_has_no_rows(session: Session) -> None:
    answer = await OwnedTranscript.new(session).page()
    answer.expect(not await _positions(answer), "no rows")
    answer.expect(not answer.ok().page.has_more, "has_more false")


@cases.case(
    "ListDisplayMessagesRequest.order: required; page_size: 1 to 1000, or 0.", needs=(_LIST,)
)
async def list_is_checked(session: Session) -> None:
    owned = OwnedTranscript.new(session)
    answer = await owned.page(pb.LIST_ORDER_UNSPECIFIED)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    for page_size in (-1, 1001):
        answer = await owned.page(page_size=page_size)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "A page ends at 1 MiB, but holds at least one row if there is one.",
    needs=(_LIST,),
    level=Level.FAULTS,
)
async def pages_end_at_1_mib(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    for size in (_LARGE, _LARGE, _LARGE, _HUGE, _LARGE):
        await owned.rows(text_item("x" * size))
    seen: list[int] = []
    has_more = True
    while has_more:
        answer = await owned.page(after=seen[-1] if seen else None)
        page = answer.ok().page
        size = sum(row.ByteSize() for row in page.display_messages)
        count = len(page.display_messages)
        answer.expect(
            count == 1 or (count > 1 and size <= _MAX_PAGE_BYTES),
            "1 row, or rows of at most 1 MiB together",
            f"{count} rows of {size} bytes",
        )
        seen += [row.position for row in page.display_messages]
        has_more = page.has_more
    answer.expect(len(set(seen)) == 5, "5 rows over all pages", str(seen))  # noqa: PLR2004  as saved


@cases.case(
    "Text is kept: what SaveMessage answered is what a list has, character by character.",
    needs=(_LIST,),
)
async def text_survives(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    saved = [(await owned.rows(text_item(text)))[0] for text in TEXTS]
    answer = await owned.page()
    for row, listed in zip(saved, answer.ok().page.display_messages, strict=False):
        answer.expect(listed.content == row.content, f"{row.content}", f"{listed.content}")
    answer.expect(len(answer.ok().page.display_messages) == len(TEXTS), f"{len(TEXTS)} rows")


@cases.case("Items may hold 1 MiB of text.", needs=(_LIST,), level=Level.FAULTS)
async def large_text_survives(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (row,) = await owned.rows(text_item("é" * (512 * 1024)))
    answer = await owned.page()
    (listed,) = answer.ok().page.display_messages
    is_whole = listed.content == row.content
    answer.expect(is_whole, "the text whole", f"{len(listed.content.text.text)} characters")


def _update(row: display_pb2.DisplayMessage) -> pb.Write:
    update = pb.UpdateToolStatusRequest(
        message_id=row.message_id,
        call_id=row.content.tool_call.call_id,
        status=display_pb2.TOOL_STATUS_EXECUTING,
    )
    return pb.Write(update_tool_status=update)


@cases.case(
    "ApplyWrites: one result for each group, in order, with its request_id.", needs=(_APPLY,)
)
async def groups_have_their_results(session: Session) -> None:
    scope = session.scope()
    groups = [(await OwnedTranscript.opened(session, scope)).group() for _ in range(3)]
    for group in groups:
        group.writes.append(OwnedTranscript.new(session, scope).save_write(text_item()))
    answer = await apply(session, *groups)
    got = [result.request_id for result in answer.ok().applied.results]
    wanted = [group.context.request_id for group in groups]
    answer.expect(got == wanted, f"results of {wanted}")
    for result in answer.ok().applied.results:
        answer.expect(result.WhichOneof("outcome") == "outcomes", "outcomes of each group")


@cases.case(
    "WriteOutcomes: one outcome for each write, in order, of the same arm as the write.",
    needs=(_APPLY,),
)
async def writes_have_their_outcomes(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (call,) = await owned.rows(call_item("call-1"))
    writes = [owned.save_write(text_item()), _update(call)]
    if RESOLVE_TOOL_RESULT.capability in session.capabilities:
        (result,) = await owned.rows(result_item("call-1", is_interrupt=True))
        resolve = pb.ResolveToolResultRequest(
            message_id=result.message_id, call_id="call-1", content=result_content("call-1", "a")
        )
        writes.append(pb.Write(resolve_tool_result=resolve))
    if SAVE_SYNTHETIC_MESSAGE.capability in session.capabilities:
        synthetic = pb.SaveSyntheticMessageRequest(
            message_id=session.name("message"), item=text_item()
        )
        writes.append(pb.Write(save_synthetic_message=synthetic))
    answer = await apply(session, owned.group(*writes))
    (result_of_group,) = answer.ok().applied.results
    got = [each.WhichOneof("outcome") for each in result_of_group.outcomes.outcomes]
    wanted = [each.WhichOneof("write") for each in writes]
    answer.expect(got == wanted, f"outcomes {wanted}")


@cases.case("The writes of a group are done in order.", needs=(_APPLY,))
async def writes_are_in_order(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    row = display_pb2.DisplayMessage(message_id=message_id)
    row.content.tool_call.call_id = "call-1"
    save = owned.save_write(call_item("call-1"), message_id=message_id)
    answer = await apply(session, owned.group(save, _update(row)))
    (result,) = answer.ok().applied.results
    answer.expect(len(result.outcomes.outcomes) == 2, "two outcomes")  # noqa: PLR2004  as sent
    updated = result.outcomes.outcomes[1].update_tool_status.updated.display_message
    is_executing = updated.tool_status == display_pb2.TOOL_STATUS_EXECUTING
    answer.expect(is_executing, "the row that the first write saved, updated by the second")


@cases.case("ApplyWritesRequest.groups: required, 1 to 256.", needs=(_APPLY,))
async def groups_are_counted(session: Session) -> None:
    answer = await apply(session)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    owned = await OwnedTranscript.opened(session)
    group = owned.group(owned.save_write())
    answer = await apply(session, *([group] * 257))
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "A write that is unset, or of an unknown arm, fails the group with INVALID_ARGUMENT.",
    needs=(_APPLY,),
)
async def unknown_write_fails_its_group(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    unknown = pb.Write.FromString(_UNKNOWN_WRITE)
    for write in (pb.Write(), unknown):
        answer = await apply(session, owned.group(owned.save_write(text_item()), write))
        (result,) = answer.ok().applied.results
        answer.expect(
            result.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0],
            "a group that failed with INVALID_ARGUMENT",
        )


@cases.case("A group is atomic: all its writes or none.", needs=(_APPLY,), level=Level.FAULTS)
async def groups_are_atomic(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    message_id = session.name("message")
    broken = owned.group(owned.save_write(text_item("lost"), message_id=message_id), pb.Write())
    answer = await apply(session, broken)
    answer.expect(answer.ok().applied.results[0].HasField("error"), "a group that failed")
    rows = await owned.rows(text_item("kept"), message_id=message_id)
    text = rows[0].content.text.text
    answer.expect("lost" not in text, "nothing saved of the failed group", repr(text))


@cases.case(
    "Groups are independent: one that fails leaves the others alone.",
    needs=(_APPLY,),
    level=Level.FAULTS,
)
async def groups_are_independent(session: Session) -> None:
    scope = session.scope()
    first, second, third = [await OwnedTranscript.opened(session, scope) for _ in range(3)]
    answer = await apply(
        session,
        first.group(first.save_write(text_item())),
        second.group(second.save_write(text_item()), pb.Write()),
        third.group(third.save_write(text_item())),
    )
    got = [result.WhichOneof("outcome") for result in answer.ok().applied.results]
    wanted = ["outcomes", "error", "outcomes"]
    answer.expect(got == wanted, f"results {wanted}")


@cases.case(
    "Each write of ApplyWrites is idempotent as the method of its name.",
    needs=(_APPLY,),
    level=Level.FAULTS,
)
async def repeated_groups_change_nothing(session: Session) -> None:
    owned = await OwnedTranscript.opened(session)
    (call,) = await owned.rows(call_item("call-1"))
    group = owned.group(owned.save_write(text_item()), _update(call))
    first = (await apply(session, group)).ok().applied.results
    answer = await apply(session, group)
    answer.expect(
        list(answer.ok().applied.results) == list(first), "the outcomes of the first call again"
    )
