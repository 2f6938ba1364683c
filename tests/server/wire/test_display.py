from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from sagentry.api.type.v1 import display_pb2 as pb
from sagentry.server.domain.display import (
    DisplayItem,
    DisplayMessageType,
    OpaqueContent,
    TextContent,
    TextKind,
    Todo,
    TodoSnapshot,
    TodoStatus,
    ToolInfo,
)
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.display import (
    content_to_pb,
    item_from_pb,
    item_to_pb,
    row_from_pb,
    row_to_pb,
    todo_from_pb,
    tool_info_to_pb,
)
from tests.support import strategies

# Any: a number that the contract does not have yet.
NEWER: Any = 99
NEWER_CONTENT = b"\xf2\x01\x02hi"  # field 30 of DisplayContent, which nobody has defined


@given(strategies.items)
def test_an_item_survives_the_wire(item):
    encoded = item_to_pb(item).SerializeToString()

    assert item_from_pb(pb.DisplayItem.FromString(encoded)) == item


def test_every_kind_of_content_that_the_contract_knows_is_covered():
    arms = {field.name for field in pb.DisplayContent.DESCRIPTOR.oneofs_by_name["body"].fields}

    assert arms == {
        "text", "thinking", "image", "file_reference", "structured_data", "notification", "error",
        "tool_call", "tool_result", "todo_snapshot", "custom",
    }  # fmt: skip


def test_content_of_a_newer_kind_is_passed_on_byte_for_byte():
    encoded = pb.DisplayItem(type=pb.DISPLAY_MESSAGE_TYPE_USER).SerializeToString()
    encoded += b"\x1a" + bytes([len(NEWER_CONTENT)]) + NEWER_CONTENT

    item = item_from_pb(pb.DisplayItem.FromString(encoded))

    assert item.content == OpaqueContent(NEWER_CONTENT)
    assert content_to_pb(item.content).SerializeToString() == NEWER_CONTENT


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (pb.DisplayItem(type=pb.DISPLAY_MESSAGE_TYPE_USER), "item.content"),
        (pb.DisplayItem(content=pb.DisplayContent(text=pb.TextContent(text="x"))), "item.type"),
        (
            pb.DisplayItem(
                type=pb.DISPLAY_MESSAGE_TYPE_USER,
                content=pb.DisplayContent(tool_call=pb.ToolCallContent(name="n")),
            ),
            "item.content.tool_call.call_id",
        ),
        (
            pb.DisplayItem(
                type=pb.DISPLAY_MESSAGE_TYPE_USER,
                content=pb.DisplayContent(custom=pb.CustomContent(type="t")),
            ),
            "item.content.custom.document.media_type",
        ),
    ],
)
def test_a_malformed_field_of_an_item_is_named(item, field):
    with pytest.raises(InvalidInputError) as caught:
        item_from_pb(item)

    assert caught.value.field == field


def test_a_todo_list_is_shown_with_its_counts():
    todos = (
        Todo(1, "a", TodoStatus.PENDING),
        Todo(2, "b", TodoStatus.COMPLETED),
        Todo(3, "c", TodoStatus.COMPLETED),
    )

    summary = content_to_pb(TodoSnapshot(todos)).todo_snapshot.summary

    assert summary == pb.TodoSummary(total=3, pending=1, completed=2)


def test_a_todo_of_a_newer_status_is_pending():
    assert todo_from_pb(pb.Todo(id=1, status=NEWER), "todo").status is TodoStatus.PENDING


def test_what_is_not_known_of_a_call_stays_unset():
    info = tool_info_to_pb(ToolInfo(name="n", result=""))

    assert (info.HasField("name"), info.HasField("result"), info.HasField("error")) == (
        True, True, False,
    )  # fmt: skip


def row(**fields) -> pb.DisplayMessage:
    facts = {"display_message_id": "d-1", "position": 3, "change": 4, "message_id": "m-1"}
    return pb.DisplayMessage(**{**facts, **fields})


def test_a_row_is_kept_as_its_store_sent_it_beside_a_few_facts():
    encoded = row(tenant="acme").SerializeToString() + NEWER_CONTENT

    kept = row_from_pb(pb.DisplayMessage.FromString(encoded), field="row")

    assert (kept.display_message_id, kept.position, kept.change, kept.message_id) == (
        "d-1", 3, 4, "m-1",
    )  # fmt: skip
    assert kept.encoded == encoded
    assert row_to_pb(kept).SerializeToString() == encoded


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (row(position=0), "row.position"),
        (row(change=-1), "row.change"),
        (row(display_message_id=""), "row.display_message_id"),
        (row(message_id="a b"), "row.message_id"),
    ],
)
def test_a_row_without_the_facts_that_the_server_goes_by_is_refused(message, field):
    with pytest.raises(InvalidInputError) as caught:
        row_from_pb(message, field="row")

    assert caught.value.field == field


def test_a_stop_reason_goes_with_the_content():
    item = DisplayItem(
        0, DisplayMessageType.USER, TextContent(TextKind.TEXT, "x"), stop_reason=None
    )

    assert not item_to_pb(item).content.HasField("stop_reason")
