"""The page about the store: its queries run, and what they show is what was saved."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2
from tests.support.stored import append, call, opened, persist, save, text

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "plugins" / "sql_store.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


async def test_the_queries_of_the_page_show_what_was_saved(tmp_path: Path) -> None:
    content = display_pb2.DisplayContent()
    content.tool_call.call_id, content.tool_call.name = "call-1", "search"
    content.tool_call.arguments_json = '{ "q": 1e2}'
    with opened(tmp_path / "s.db") as store:
        conversation = "order-17"
        await store.rows.SaveMessage(save("m", text("hello é"), content), call(conversation))
        failed = display_pb.UpdateToolStatusRequest(
            message_id="m",
            call_id="call-1",
            status=display_pb2.TOOL_STATUS_FAILED,
            tool_info=display_pb2.ToolInfo(error="no network"),
        )
        await store.rows.UpdateToolStatus(failed, call(conversation))
        claim = agent_pb.LoadStateRequest(claim=agent_pb.StateClaim(owner_id="server-a"))
        await store.states.LoadState(claim, call(conversation))
        await store.states.PersistState(persist(1, '{"v": 1}'), call(conversation, epoch=1))
        await store.states.AppendState(append(2, '["p"]'), call(conversation, epoch=1))
        flag = agent_pb.SetInterruptedRequest(interrupted=True, revision=2)
        await store.states.SetInterrupted(flag, call(conversation, epoch=1))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        shown = [connection.execute(query).fetchall() for query in QUERIES]

    arguments = (
        '{"tool_call":{"call_id":"call-1","name":"search","arguments_json":"{ \\"q\\": 1e2}"}}'
    )
    assert shown == [
        [
            (1, "assistant", None, "text", '{"text":{"text":"hello é"}}'),
            (2, "assistant", "failed", "tool_call", arguments),
        ],
        [("assistant", "hello é")],
        [("m", "search", '{ "q": 1e2}', "no network")],
        [("scoped", "acme", "", "order-17", "server-a", 1)],
        [(1, '{"v": 1}')],
        [(2, '["p"]')],
    ]
