"""A proxy on a Unix socket that cuts connections at random bytes of what the server says."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

SHARE = 16 * 1024


@dataclass(slots=True)
class CuttingProxy:
    """Passes everything on; each connection is cut after a random number of bytes.

    Attributes:
        address: What a client connects to.
        cuts: How many connections were cut so far.
        cuts_left: How many may still be cut; then all is calm.
    """

    server: Path
    dice: random.Random
    longest: int
    cuts_left: int
    address: str = ""
    cuts: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_unix_connection(str(self.server))
        except OSError:
            # The server is away: so is what is behind the proxy.
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                up = group.create_task(self._pass(reader, upstream_writer, None))
                budget = self.dice.randint(1, self.longest)
                await self._pass(upstream_reader, writer, budget)
                up.cancel()
        finally:
            for one in (writer, upstream_writer):
                one.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(SHARE):
                if budget is not None and self.cuts_left > 0:
                    if len(data) >= budget:
                        writer.write(data[:budget])
                        await writer.drain()
                        self.cuts += 1
                        self.cuts_left -= 1
                        return
                    budget -= len(data)
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def cutting_proxy(
    server: Path, *, seed: int, cuts: int, longest: int = 20_000
) -> AsyncIterator[CuttingProxy]:
    """Runs a proxy beside a server's socket.

    Args:
        server: The server's socket.
        seed: Of the places where it cuts.
        cuts: How many connections it cuts.
        longest: Most bytes that a connection passes before its cut.
    """
    proxy = CuttingProxy(server, random.Random(seed), longest, cuts)
    path = server.with_name(f"proxy-{seed}.sock")
    proxy.address = f"unix:{path}"
    listening = await asyncio.start_unix_server(proxy.serve, str(path))
    try:
        yield proxy
    finally:
        listening.close()
        path.unlink(missing_ok=True)
