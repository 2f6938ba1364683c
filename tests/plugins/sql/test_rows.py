from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2, document_pb2, message_pb2
from sagentry.plugins.sql.content import encoded
from tests.support.stored import append, call, listed, opened, persist, save, text

pytestmark = pytest.mark.anyio

CHANGE = display_pb.LIST_ORDER_CHANGE_ASCENDING
UNKNOWN = b"\xc2\x94\x0e\x08\x0a\x06future"  # field 29000, which no version knows
ARGUMENTS = f'{{"big":9007199254740993,"bigger":1e400,"deep":{"[" * 60}{"]" * 60},"nul":"\\u0000"}}'


def custom(data: bytes) -> display_pb2.DisplayContent:
    content = display_pb2.DisplayContent()
    content.custom.type = "example"
    content.custom.document.media_type = "application/x-signature"
    content.custom.document.data = data
    return content


def tool_call(arguments: str) -> display_pb2.DisplayContent:
    content = display_pb2.DisplayContent(stop_reason=message_pb2.MESSAGE_STATUS_CONTENT_FILTERED)
    content.tool_call.call_id, content.tool_call.name = "call-1", "search"
    content.tool_call.arguments_json = arguments
    content.stop_details.media_type, content.stop_details.json = "application/json", "{ }"
    return content


CONTENTS = [
    text("plain"),
    text(""),
    text("👩‍💻🏳️‍🌈 emoji"),
    text("שלום عالم \u202eright to left\u202c"),
    text("e\u0301 \u1ab0 combining, n\u0303 not joined"),
    text("NUL \0 and \x7f and \ud7ff\ue000\uffff\U0010ffff"),
    text("x" * 1024 * 1024),
    tool_call(ARGUMENTS),
    tool_call("not JSON: {\0"),
    display_pb2.DisplayContent(
        tool_result=display_pb2.ToolResultContent(call_id="c", text="t\0", is_error=True)
    ),
    custom(bytes(range(256))),
    display_pb2.DisplayContent(),
    display_pb2.DisplayContent.FromString(UNKNOWN),
    display_pb2.DisplayContent.FromString(text("known").SerializeToString() + UNKNOWN),
    display_pb2.DisplayContent(
        todo_snapshot=display_pb2.TodoSnapshot(
            todos=[display_pb2.Todo(id=2**31 - 1, content="x", status=77)]  # type: ignore[arg-type]
        )
    ),
]


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_content_is_written_as_protobuf_json(content: display_pb2.DisplayContent) -> None:
    columns = encoded(display_pb2.DisplayMessage(content=content))

    wanted = json_format.MessageToDict(content, preserving_proto_field_name=True)
    assert json.loads(str(columns["content"])) == wanted


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
async def test_content_survives_the_database(
    tmp_path: Path, content: display_pb2.DisplayContent
) -> None:
    with opened(tmp_path / "s.db") as store:
        saved = await store.rows.SaveMessage(save("m", content), call())
    with opened(tmp_path / "s.db") as store:
        rows = await listed(store)

    assert rows == list(saved.saved.display_messages)
    assert rows[0].content.SerializeToString() == content.SerializeToString()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    values=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8),
    metadata=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_text_survives(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], metadata: str
) -> None:
    async def round_trip() -> list[display_pb2.DisplayMessage]:
        with opened(tmp_path_factory.mktemp("any") / "s.db") as store:
            request = save("m", *(text(value) for value in values))
            document = document_pb2.Document(media_type="application/json", json=metadata)
            request.items[0].metadata.CopyFrom(document)
            await store.rows.SaveMessage(request, call())
            return await listed(store)

    rows = asyncio.run(round_trip())

    assert [row.content.text.text for row in rows] == values
    assert rows[0].metadata.json == metadata


async def test_states_survive_verbatim_with_unknown_fields(tmp_path: Path) -> None:
    state = f'{{ "lone":"\\ud83d","signature":"{"AP8B" * 500}", "args": {ARGUMENTS}  }}\n'
    request = persist(1, state)
    request.state.MergeFromString(UNKNOWN)
    patch = append(2, state)
    patch.patch.MergeFromString(UNKNOWN)
    with opened(tmp_path / "s.db") as store:
        await store.states.PersistState(request, call())
        await store.states.AppendState(patch, call())
    with opened(tmp_path / "s.db") as store:
        loaded = await store.states.LoadState(agent_pb.LoadStateRequest(), call())

    assert loaded.found.base.SerializeToString() == request.state.SerializeToString()
    assert loaded.found.patches[0].patch.SerializeToString() == patch.patch.SerializeToString()


async def test_unknown_fields_of_tool_info_survive_updates(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        await store.rows.SaveMessage(save("m", tool_call("{}")), call())
        for status, name in ((2, "first"), (3, "second")):
            request = display_pb.UpdateToolStatusRequest(
                message_id="m",
                call_id="call-1",
                status=status,  # type: ignore[arg-type]
            )
            request.tool_info.MergeFromString(UNKNOWN if status == 2 else b"")
            request.tool_info.name = name
            await store.rows.UpdateToolStatus(request, call())
        (row,) = await listed(store)

    assert row.tool_info.name == "second"
    assert row.tool_info.SerializeToString().endswith(UNKNOWN)


async def test_content_is_kept_encoded_only_where_json_would_lose_something(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        await store.rows.SaveMessage(save("m", *CONTENTS), call())
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        exact = [bool(row[0]) for row in connection.execute("SELECT exact FROM display_messages")]

    assert exact == [bool(UNKNOWN in each.SerializeToString()) for each in CONTENTS]


async def test_places_are_gap_free_and_visible_in_order_under_16_writers(tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {display_pb.LIST_ORDER_POSITION_ASCENDING: [], CHANGE: []}
    with opened(tmp_path / "s.db") as store:
        writing = True

        async def write(writer: int) -> None:
            for number in range(8):
                message_id = f"m-{writer}-{number}"
                await store.rows.SaveMessage(save(message_id, tool_call("{}"), text("b")), call())
                update = display_pb.UpdateToolStatusRequest(
                    message_id=message_id,
                    call_id="call-1",
                    status=display_pb2.TOOL_STATUS_EXECUTING,
                )
                await store.rows.UpdateToolStatus(update, call())

        async def read(order: int) -> None:
            while writing:
                rows = await listed(store, order)
                values = [row.change if order == CHANGE else row.position for row in rows]
                if order != CHANGE:
                    assert values[: len(seen[order])] == seen[order]
                elif seen[order]:
                    new = [value for value in values if value not in seen[order]]
                    assert all(value > max(seen[order]) for value in new)
                seen[order] = sorted({*seen[order], *values})

        async with asyncio.TaskGroup() as readers:
            for order in seen:
                readers.create_task(read(order))
            async with asyncio.TaskGroup() as writers:
                for writer in range(16):
                    writers.create_task(write(writer))
            writing = False
        rows = await listed(store)

    assert [row.position for row in rows] == list(range(1, 257))
    assert max(row.change for row in rows) == 384
    assert len({row.change for row in rows}) == 256


async def test_every_statement_names_the_conversation(tmp_path: Path) -> None:
    """Tenants are kept apart by each statement, not by what the code around it does."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(" ".join(statement.split()))

    with opened(tmp_path / "s.db") as store:
        for engine in (store.store.database.writing, store.store.database.reading):
            event.listen(engine, "before_cursor_execute", note)
        await store.rows.SaveMessage(save("m", tool_call("{}")), call())
        update = display_pb.UpdateToolStatusRequest(message_id="m", call_id="call-1", status=2)  # type: ignore[arg-type]
        await store.rows.UpdateToolStatus(update, call())
        await listed(store)
        await store.states.PersistState(persist(1), call())
        await store.states.AppendState(append(2), call())
        await store.states.PersistState(persist(3), call())
        await store.states.LoadState(agent_pb.LoadStateRequest(), call())

    touching = [each for each in statements if not re.match(r"BEGIN|SAVEPOINT|RELEASE", each)]
    keyed = re.compile(r"WHERE .*conversation_key = \?|INSERT INTO \w+ \(conversation_key,")
    identified = re.compile(r"tenant = \? AND .*partition.* = \? AND .*conversation_id = \?|INSERT")
    for statement in touching:
        is_head = "conversations" in statement
        assert (identified if is_head else keyed).search(statement), statement
    assert len(touching) > 12


async def test_unscoped_rows_are_marked_by_a_column_of_their_own(tmp_path: Path) -> None:
    with opened(tmp_path / "s.db") as store:
        await store.rows.SaveMessage(save("m", text("a")), call())
    with (
        closing(sqlite3.connect(tmp_path / "s.db")) as connection,
        pytest.raises(sqlite3.IntegrityError, match="scoped_has_tenant"),
    ):
        connection.execute("UPDATE conversations SET scope_kind = 'unscoped'")
