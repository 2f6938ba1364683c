"""Calls of the SQL store in process: requests, and the store with its two servicers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2
from sagentry.plugins.sdk import Call
from sagentry.plugins.sql import (
    SqlAgentPersistence,
    SqlDisplayMessagePersistence,
    Store,
    StoreOptions,
    open_store,
)

_numbers = itertools.count()


@dataclass(frozen=True)
class Opened:
    """An open store."""

    store: Store
    states: SqlAgentPersistence
    rows: SqlDisplayMessagePersistence


@contextmanager
def opened(database: Path, options: StoreOptions | None = None) -> Iterator[Opened]:
    with open_store(str(database), options) as store:
        yield Opened(store, SqlAgentPersistence(store), SqlDisplayMessagePersistence(store))


def call(conversation_id: str = "c", *, epoch: int = 0, expires: float | None = None) -> Call:
    return Call(
        tenant="acme",
        conversation_id=conversation_id,
        request_id=f"r-{next(_numbers)}",
        owner_epoch=epoch,
        expires=expires,
    )


def save(message_id: str, *contents: display_pb2.DisplayContent) -> display_pb.SaveMessageRequest:
    request = display_pb.SaveMessageRequest()
    request.message.message_id = message_id
    for sequence, content in enumerate(contents):
        request.items.add(
            sequence=sequence,
            type=display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT,
            content=content,
        )
    return request


def text(value: str) -> display_pb2.DisplayContent:
    return display_pb2.DisplayContent(text=display_pb2.TextContent(text=value))


def persist(revision: int, state: str = "{}") -> agent_pb.PersistStateRequest:
    request = agent_pb.PersistStateRequest(revision=revision, schema_version=1)
    request.state.media_type, request.state.json = "application/json", state
    return request


def append(revision: int, patch: str = "[]") -> agent_pb.AppendStateRequest:
    request = agent_pb.AppendStateRequest(revision=revision, expected_revision=revision - 1)
    request.patch.media_type, request.patch.json = "application/json", patch
    return request


async def listed(
    store: Opened, order: int = display_pb.LIST_ORDER_POSITION_ASCENDING, conversation: str = "c"
) -> list[display_pb2.DisplayMessage]:
    request = display_pb.ListDisplayMessagesRequest(order=order, page_size=1000)  # type: ignore[arg-type]
    response = await store.rows.ListDisplayMessages(request, call(conversation))
    return list(response.page.display_messages)
