"""The SQL store, but it can be held between its commit and its answer.

    python -m tests.support.plugins.holding_store DATABASE FOLDER

While FOLDER/hold exists, a display write is done and committed, FOLDER/held is made, and the answer never
comes.
"""
# ruff: noqa: N802 - method names are the contract's

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TypeVar

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.plugins.sdk import Call, serve_async
from sagentry.plugins.sql.servicer import (
    AGENT_CAPABILITIES,
    SqlAgentPersistence,
    SqlDisplayMessagePersistence,
)
from sagentry.plugins.sql.store import Store, open_store

T = TypeVar("T")


class HoldingStore(SqlDisplayMessagePersistence):
    def __init__(self, store: Store, folder: Path) -> None:
        super().__init__(store)
        self._folder = folder

    async def SaveMessage(
        self, request: pb.SaveMessageRequest, call: Call
    ) -> pb.SaveMessageResponse:
        return await self._held(await super().SaveMessage(request, call))

    async def ApplyWrites(
        self, request: pb.ApplyWritesRequest, call: Call
    ) -> pb.ApplyWritesResponse:
        return await self._held(await super().ApplyWrites(request, call))

    async def _held(self, response: T) -> T:
        if (self._folder / "hold").exists():
            (self._folder / "held").touch()
            await asyncio.Event().wait()
        return response


async def main(database: str, folder: Path) -> None:
    with open_store(database) as store:
        await serve_async(
            SqlAgentPersistence(store),
            HoldingStore(store, folder),
            name="sagentry.holding",
            version="0",
            capabilities=[AGENT_CAPABILITIES],
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
