"""What a user might take instead: server-sent events by starlette on uvicorn with uvloop, one event a write.

Runs in the baselines' own environment, without anything of ours.
"""

from __future__ import annotations

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


async def events(_request: Request) -> StreamingResponse:
    """The same event, as fast as it goes."""
    event = f"data: {json.dumps(EVENT)}\n\n".encode()

    async def stream() -> AsyncIterator[bytes]:
        while True:
            yield event

    return StreamingResponse(stream(), media_type="text/event-stream")


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Starlette(routes=[Route("/", events)]), loop="uvloop", http="httptools", log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
