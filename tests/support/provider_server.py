"""An HTTP server on loopback that speaks the streaming forms of providers, and remembers the requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CUT = b"\0cut"
"""In the place of a piece: the connection dies here."""


@dataclass(frozen=True)
class Answer:
    """What the server says to one request."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ProviderServer:
    """Gives its answers one after the other.

    Attributes:
        url: Where it listens.
        asked: Bodies of the requests.
        headers: Their headers, names in small letters.
    """

    answers: list[Answer]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        headers: dict[str, str] = {}
        while (header := await reader.readline()).strip():
            name, _, value = header.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.headers.append(headers)
        self.asked.append(json.loads(body))
        answer = self.answers.pop(0)
        kind = "text/event-stream" if answer.status == 200 else "application/json"
        head = [
            f"HTTP/1.1 {answer.status} X",
            f"content-type: {kind}",
            "transfer-encoding: chunked",
        ]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode())
        for piece in answer.pieces:
            await writer.drain()
            if piece == CUT:
                writer.transport.abort()
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def provider_server(*answers: Answer) -> AsyncIterator[ProviderServer]:
    """Runs a server with these answers."""
    provider = ProviderServer(list(answers))
    listening = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    provider.url = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        listening.close()


def failure(status: int, body: Mapping[str, Any], **headers: str) -> Answer:
    """An answer that is an error."""
    return Answer(
        (json.dumps(body).encode(),),
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


# --- Anthropic's form


def event(kind: str, **fields: Any) -> bytes:
    """One event of an answer."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begun() -> bytes:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 4},
    }
    return event("message_start", message=message)


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[bytes]:
    """A block of content: its beginning, its pieces, its end."""
    return [
        event("content_block_start", index=index, content_block=start),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text_block(index: int, *pieces: str) -> list[bytes]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking_block(index: int, signature: Sequence[str], *pieces: str) -> list[bytes]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = [{"type": "signature_delta", "signature": piece} for piece in signature]
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, start, *deltas, *signed)


def tool_block(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, *deltas)


def ended(reason: str = "end_turn", output_tokens: int = 5) -> list[bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    # Totals of the whole call.
    usage = {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": output_tokens}
    return [event("message_delta", delta=delta, usage=usage), event("message_stop")]


# --- OpenAI's form


def chunk(delta: Mapping[str, Any] | None = None, **more: Any) -> bytes:
    """One chunk of an answer; without a delta one that has no choice."""
    finish = more.pop("finish_reason", None)
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**body, 'choices': choices, **more})}\n\n".encode()


def call_piece(index: int, arguments: str, call_id: str = "", name: str = "") -> bytes:
    piece: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if call_id:
        piece |= {"id": call_id, "type": "function"}
        piece["function"]["name"] = name
    return chunk({"tool_calls": [piece]})


def usage_chunk(prompt: int, completion: int) -> bytes:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    return chunk(usage=usage)


DONE = b"data: [DONE]\n\n"
