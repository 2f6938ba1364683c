"""Turns langchain's chunks into the server's, one by one and without ever adding chunks.

Adding chunks parses the whole of a tool call's arguments again for every piece: 11 seconds on the
event loop for a call of 8000 pieces.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage as WholeMessage
from langchain_core.messages import AIMessageChunk, BaseMessage

from sagentry.server.domain.messages import Document, TokenUsage
from sagentry.server.domain.models import (
    EndChunk,
    ModelChunk,
    OpaqueChunk,
    SignatureChunk,
    StopKind,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from sagentry.server.domain.text import SurrogateJoiner
from sagentry.server.model.to_langchain import opaque_media_type

_log = logging.getLogger(__name__)


class UsageMode(enum.Enum):
    """What the usage in a chunk means.

    Attributes:
        INCREMENTS: Tokens since the chunk before, which is langchain's rule; one report at the end
            is the same.
        TOTALS: Tokens so far.
    """

    INCREMENTS = "increments"
    TOTALS = "totals"


_STOP_KEYS = ("stop_reason", "finish_reason", "done_reason")
_LENGTH = {
    "length",
    "max_tokens",
    "max_output_tokens",
    "model_length",
    "model_context_window_exceeded",
}
_FILTERED = {
    "content_filter",
    "refusal",
    "safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "guardrail_intervened",
}
_GIVEN_BACK = {"redacted_thinking"}
"""Blocks that nobody but the provider can read, and that it wants back as they were."""

_CARRIED_BESIDE = {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call"}
"""Blocks that repeat what `tool_call_chunks` says."""


def stop_kind(metadata: Mapping[str, Any]) -> StopKind | None:
    """Returns why the model stopped, by a chunk's metadata, or None when it says nothing of it.

    A reason that is not known is a normal stop: the provider did end its answer.
    """
    reason = next((metadata[key] for key in _STOP_KEYS if metadata.get(key)), None)
    if reason is None:
        status = metadata.get("status")
        if status == "completed":
            return StopKind.STOP
        details = metadata.get("incomplete_details")
        if status != "incomplete" or not isinstance(details, Mapping):
            return None
        reason = details.get("reason") or "length"
    word = str(getattr(reason, "name", reason)).lower()
    if word in _LENGTH:
        return StopKind.LENGTH
    return StopKind.CONTENT_FILTER if word in _FILTERED else StopKind.STOP


class ChunkTranslator:
    """Translates the chunks of one answer.

    Attributes:
        stop: Why the model stopped, once it has said so.
        dropped: Types of blocks that the server has no part for.
    """

    def __init__(self, usage_mode: UsageMode = UsageMode.INCREMENTS, *, provider: str = "") -> None:
        """Starts before the first chunk; the provider is told apart by its name."""
        self._provider = provider
        self.stop: StopKind | None = None
        self.dropped: set[str] = set()
        self._usage_mode = usage_mode
        self._usage: TokenUsage | None = None
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._signature: list[str] = []
        self._calls = _CallPieces()

    @property
    def replaced(self) -> int:
        """How many lone surrogates were replaced so far."""
        return self._text.replaced + self._thinking.replaced + self._calls.replaced

    def translate(
        self, message: BaseMessage, generation_info: Mapping[str, Any] | None
    ) -> Iterator[ModelChunk]:
        """Returns what one chunk says, in the order in which a reader should see it."""
        yield from self._content(message)
        if isinstance(message, AIMessageChunk):
            for piece in message.tool_call_chunks:
                yield from self._leave_content()
                yield from self._calls.piece(piece)
        elif isinstance(message, WholeMessage):
            yield from self._whole_calls(message)
        usage = getattr(message, "usage_metadata", None)
        if usage:
            yield UsageChunk(self._total(_usage(usage)))
        for metadata in (message.response_metadata, generation_info or {}):
            kind = stop_kind(metadata) if metadata else None
            self.stop = kind or self.stop

    def finish(self) -> Iterator[ModelChunk]:
        """Ends the answer: what was held back comes out, then the end, if the model said why."""
        yield from self._leave_content()
        yield from self._calls.flush()
        if self.stop is not None:
            yield EndChunk(self.stop)

    def _content(self, message: BaseMessage) -> Iterator[ModelChunk]:
        thought = message.additional_kwargs.get("reasoning_content")
        if isinstance(thought, str) and thought:
            yield from self._on_thinking(thought)
        content = message.content
        if isinstance(content, str):
            if content:
                yield from self._on_text(content)
            return
        for block in content:
            if isinstance(block, str):
                yield from self._on_text(block)
            else:
                yield from self._block(block)

    def _block(self, block: Mapping[str, Any]) -> Iterator[ModelChunk]:
        kind = block.get("type")
        if kind in {"text", "text-plain"}:
            yield from self._on_text(str(block.get("text") or ""))
        elif kind in {"thinking", "reasoning"}:
            thought = block.get("thinking") or block.get("reasoning") or ""
            yield from self._on_thinking(str(thought))
            extras = block.get("extras")
            signature = block.get("signature") or (
                extras.get("signature") if isinstance(extras, Mapping) else None
            )
            if signature:
                self._signature.append(str(signature))
        elif kind in _GIVEN_BACK and self._provider:
            yield from self._leave_content()
            kept = {key: value for key, value in block.items() if key != "index"}
            text = json.dumps(kept, ensure_ascii=False)
            yield OpaqueChunk(Document(opaque_media_type(self._provider), json=text))
        elif kind not in _CARRIED_BESIDE and kind not in self.dropped:
            self.dropped.add(str(kind))
            _log.warning("the model sent a block of type %s, which is left out", kind)

    def _on_text(self, piece: str) -> Iterator[ModelChunk]:
        if not piece:
            return
        yield from self._leave_thinking()
        text = self._text.push(piece)
        if text:
            yield TextChunk(text)

    def _on_thinking(self, piece: str) -> Iterator[ModelChunk]:
        if not piece:
            return
        yield from self._leave_text()
        if self._signature:
            # The thinking before was signed and is over; this is another.
            yield from self._leave_thinking()
        text = self._thinking.push(piece)
        if text:
            yield ThinkingChunk(text)

    def _leave_content(self) -> Iterator[ModelChunk]:
        yield from self._leave_text()
        yield from self._leave_thinking()

    def _leave_text(self) -> Iterator[ModelChunk]:
        rest = self._text.flush()
        if rest:
            yield TextChunk(rest)

    def _leave_thinking(self) -> Iterator[ModelChunk]:
        rest = self._thinking.flush()
        if rest:
            yield ThinkingChunk(rest)
        if self._signature:
            # Only a whole signature is passed on: half of one makes the thinking invalid for ever.
            signature = "".join(self._signature)
            self._signature.clear()
            yield SignatureChunk(signature.encode(errors="replace"))

    def _whole_calls(self, message: WholeMessage) -> Iterator[ModelChunk]:
        for call in message.tool_calls:
            yield from self._leave_content()
            arguments = json.dumps(call["args"], ensure_ascii=False)
            yield from self._calls.piece(
                {"id": call["id"], "name": call["name"], "args": arguments}
            )
        for bad in message.invalid_tool_calls:
            yield from self._leave_content()
            yield from self._calls.piece(bad)

    def _total(self, usage: TokenUsage) -> TokenUsage:
        if self._usage is None:
            self._usage = usage
        elif self._usage_mode is UsageMode.INCREMENTS:
            self._usage += usage
        else:
            # A later report may leave out what an earlier one had.
            merged = zip(usage.counts(), self._usage.counts(), strict=True)
            self._usage = TokenUsage(*(old if new is None else new for new, old in merged))
        return self._usage


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    read = usage.get("input_token_details") or {}
    written = usage.get("output_token_details") or {}
    return TokenUsage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read.get("cache_read"),
        cache_write_tokens=read.get("cache_creation"),
        thinking_tokens=written.get("reasoning"),
    )


class _CallPieces:
    """Numbers the calls of one answer and repairs the text of their arguments."""

    def __init__(self) -> None:
        self._joiners: list[SurrogateJoiner] = []
        self._by_key: dict[object, int] = {}
        self._ids: list[str] = []
        self._current = -1

    @property
    def replaced(self) -> int:
        return sum(joiner.replaced for joiner in self._joiners)

    def piece(self, piece: Mapping[str, Any]) -> Iterator[ToolCallChunk]:
        call_id, name = str(piece.get("id") or ""), str(piece.get("name") or "")
        index = self._number(piece.get("index"), call_id, name)
        if index != self._current and self._current >= 0:
            yield from self._flush(self._current)
        self._current = index
        known_id = self._ids[index]
        if call_id and not known_id:
            self._ids[index] = call_id
        arguments = self._joiners[index].push(str(piece.get("args") or ""))
        new_id = call_id if call_id != known_id else ""
        if new_id or name or arguments:
            yield ToolCallChunk(index, new_id, name, arguments)

    def flush(self) -> Iterator[ToolCallChunk]:
        for index in range(len(self._joiners)):
            yield from self._flush(index)

    def _flush(self, index: int) -> Iterator[ToolCallChunk]:
        rest = self._joiners[index].flush()
        if rest:
            yield ToolCallChunk(index, arguments=rest)

    def _number(self, key: object, call_id: str, name: str) -> int:
        """Finds which call a piece belongs to.

        Providers differ: some number all blocks of an answer, some give every call the index 0 and
        tell them apart by id, some give whole calls without any index.
        """
        known = self._by_key.get(key) if key is not None else self._current
        if known is not None and known >= 0:
            known_id = self._ids[known]
            another = bool(call_id and known_id and call_id != known_id)
            unnumbered = key is None and bool(call_id or name)
            if not another and not unnumbered:
                return known
            if another:
                earlier = self._ids.index(call_id) if call_id in self._ids else None
                if earlier is not None:
                    return earlier
        number = len(self._joiners)
        self._joiners.append(SurrogateJoiner())
        self._ids.append("")
        if key is not None:
            self._by_key[key] = number
        return number
