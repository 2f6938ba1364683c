"""The SQL store: rows a second with group commit, against a commit for each row. One run, ratios."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.plugins.sdk import Call
from sagentry.plugins.sql import SqlDisplayMessagePersistence, StoreOptions, open_store

TEXT = "x" * 1600
CONVERSATIONS = 16


def save(message_id: str) -> pb.SaveMessageRequest:
    request = pb.SaveMessageRequest()
    request.message.message_id = message_id
    request.items.add(
        type=display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT,
        content=display_pb2.DisplayContent(text=display_pb2.TextContent(text=TEXT)),
    )
    return request


def call(number: int) -> Call:
    return Call(
        tenant="acme", conversation_id=f"c-{number % CONVERSATIONS}", request_id=f"r-{number}"
    )


async def rate(rows: int, callers: int, write: Callable[[int], Awaitable[object]]) -> float:
    numbers = iter(range(rows))

    async def caller() -> None:
        for number in numbers:
            await write(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    return rows / (time.perf_counter() - began)


async def measure(database: Path, rows: int) -> None:
    commits: list[int] = []
    with open_store(str(database), StoreOptions(on_commit=commits.append)) as store:
        servicer = SqlDisplayMessagePersistence(store)
        base = 0.0
        for callers in (1, 8, 64):
            commits.clear()

            async def write(number: int, callers: int = callers) -> None:
                await servicer.SaveMessage(save(f"m-{callers}-{number}"), call(number))

            each = await rate(rows, callers, write)
            base = base or each
            print(
                f"{callers:3} callers: {each:7.0f} rows/s, {rows / len(commits):5.1f} rows a commit, "
                f"{each / base:4.1f} times one caller"
            )

        async def write_group(number: int) -> None:
            request = pb.ApplyWritesRequest()
            for index in range(CONVERSATIONS):
                group = request.groups.add()
                group.context.scope.scoped.tenant = "acme"
                group.context.conversation_id = f"c-{index}"
                group.context.request_id = f"g-{number}-{index}"
                group.writes.add().save_message.CopyFrom(save(f"g-{number}"))
            await servicer.ApplyWrites(request, call(number))

        calls = rows // CONVERSATIONS
        each = await rate(calls, 4, write_group) * CONVERSATIONS
        print(
            f"ApplyWrites of {CONVERSATIONS}, 4 callers: {each:.0f} rows/s, {each / base:.1f} times"
        )

        request = pb.ListDisplayMessagesRequest(order=pb.LIST_ORDER_CHANGE_ASCENDING)

        async def read(number: int) -> None:
            await servicer.ListDisplayMessages(request, call(number))

        pages = await rate(200, 4, read)
        print(f"pages of 100 rows: {pages:.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        asyncio.run(measure(Path(folder) / "store.db", options.rows))


if __name__ == "__main__":
    main()
