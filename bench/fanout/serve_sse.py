"""What a user might take instead: server-sent events by starlette on uvicorn with uvloop, one event a write.

Runs in the baselines' own environment, without anything of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

EVENT = {
    "message_id": "msg-0123456789abcdef",
    "run_id": "run-0123456789abcdef",
    "text": "01234567890123456789 word",
}


IN_A_ROW = 16
"""A write that need not wait lets nobody else have a turn: without one the first stream would be the only."""


class Events:
    """The same event, as fast as it goes, once all streams are open."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self._all_open = asyncio.Event()

    async def respond(self, _request: Request) -> StreamingResponse:
        """Answers one reader."""
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        event = f"data: {json.dumps(EVENT)}\n\n".encode()
        yield event
        self._missing -= 1
        if self._missing <= 0:
            self._all_open.set()
        await self._all_open.wait()
        while True:
            for _ in range(IN_A_ROW):
                yield event
            await asyncio.sleep(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1, help="how many to wait for")
    events = Events(parser.parse_args().streams)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Starlette(routes=[Route("/", events.respond)]),
        loop="uvloop",
        http="httptools",
        log_level="error",
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
