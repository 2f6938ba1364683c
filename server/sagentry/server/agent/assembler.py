"""Builds a message from a model's chunks: deltas for readers, changes for the journal, the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sagentry.server.domain.events import (
    ArgumentsDelta,
    Delta,
    DeltaBody,
    PartFinished,
    PartKind,
    PartStarted,
    SignatureDelta,
    TextDelta,
)
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import (
    Document,
    Message,
    MessageStatus,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCall,
    ToolCallStatus,
)
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
from sagentry.server.domain.state import Change, PartOpened, TextGrown
from sagentry.server.domain.text import repair

MAX_TEXT_BYTES = 1024 * 1024
"""A model message that would pass this much text ends as `length`."""

STATUS_OF_STOP = {
    StopKind.STOP: MessageStatus.COMPLETE,
    StopKind.LENGTH: MessageStatus.LENGTH,
    StopKind.CONTENT_FILTER: MessageStatus.CONTENT_FILTERED,
}


@dataclass(slots=True)
class _GrowingPart:
    """A part as far as it is. Its text stays in pieces: joining at each one would cost the square."""

    kind: PartKind
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    signature: bytes = b""
    call_id: str = ""
    provider_call_id: str = ""
    name: str = ""
    finished: bool = False
    document: Document | None = None


class MessageAssembler:
    """One growing assistant message.

    Args:
        message_id: Its id.
        run_id: The run that makes it.
        create_time: When it began.
        label: Gives a tool's label for people.
        on_delta: Told of each growth, in order.
    """

    def __init__(
        self,
        message_id: str,
        run_id: str,
        create_time: datetime,
        *,
        label: Callable[[str], str],
        on_delta: Callable[[Delta], None],
    ) -> None:
        """Begins with no parts."""
        self.message_id = message_id
        self.usage: TokenUsage | None = None
        self.stop: StopKind | None = None
        self._run_id = run_id
        self._create_time = create_time
        self._label = label
        self._on_delta = on_delta
        self._parts: list[_GrowingPart] = []
        self._call_parts: dict[int, int] = {}
        self._text_bytes = 0
        self._opened = 0
        self._recorded: list[int] = []
        self._unrecorded_bytes = 0
        self._taken: tuple[int, list[int], int] = (0, [], 0)

    @property
    def is_empty(self) -> bool:
        """Whether the model has said nothing yet."""
        return not self._parts

    @property
    def is_full(self) -> bool:
        """Whether the message has reached its largest size."""
        return self._text_bytes >= MAX_TEXT_BYTES

    @property
    def unrecorded_bytes(self) -> int:
        """Bytes of text that `take_changes` has not given out yet."""
        return self._unrecorded_bytes

    def take(self, chunk: ModelChunk) -> None:
        """Takes a chunk in and tells of the growth."""
        match chunk:
            case TextChunk(text=text):
                self._grow(self._speech_part(PartKind.TEXT), text)
            case ThinkingChunk(text=text):
                self._grow(self._speech_part(PartKind.THINKING), text)
            case SignatureChunk(signature=signature):
                self._sign(signature)
            case ToolCallChunk():
                self._take_call(chunk)
            case OpaqueChunk(document=document):
                part = _GrowingPart(PartKind.OTHER, document=document)
                self._finish(self._open(part))
            case UsageChunk(usage=usage):
                self.usage = usage
            case EndChunk(stop=stop):
                self.stop = stop
                self._finish_parts()

    def take_changes(self) -> list[Change]:
        """Returns the changes that record what has come since the last call."""
        self._taken = (self._opened, list(self._recorded), self._unrecorded_bytes)
        changes: list[Change] = []
        for index, part in enumerate(self._parts):
            if index >= self._opened:
                changes.append(PartOpened(self.message_id, self._part(part, whole=False)))
                self._opened += 1
                self._recorded.append(len(part.pieces))
            elif self._recorded[index] < len(part.pieces):
                text = "".join(part.pieces[self._recorded[index] :])
                changes.append(TextGrown(self.message_id, index, text))
                self._recorded[index] = len(part.pieces)
        self._unrecorded_bytes = 0
        return changes

    def take_back(self) -> None:
        """Takes back the last `take_changes`: they were not recorded, and come again with the next."""
        self._opened, self._recorded, size = self._taken
        self._unrecorded_bytes += size

    def message(self, status: MessageStatus | None = None) -> Message:
        """Returns the message as it is; `status` defaults to what the model's stop says."""
        if status is None:
            status = STATUS_OF_STOP[self.stop or StopKind.STOP]
        whole = status is MessageStatus.COMPLETE
        return Message(
            message_id=self.message_id,
            role=Role.ASSISTANT,
            parts=tuple(self._part(part, whole=whole) for part in self._parts),
            create_time=self._create_time,
            status=status,
            usage=self.usage,
            run_id=self._run_id,
        )

    def _speech_part(self, kind: PartKind) -> int:
        last = len(self._parts) - 1
        if last >= 0 and self._parts[last].kind is kind and not self._parts[last].signature:
            return last
        return self._open(_GrowingPart(kind))

    def _open(self, part: _GrowingPart) -> int:
        if self._parts and self._parts[-1].kind is not PartKind.TOOL_CALL:
            self._finish(len(self._parts) - 1)
        self._parts.append(part)
        index = len(self._parts) - 1
        self._tell(index, PartStarted(part.kind, part.call_id, part.name))
        return index

    def _grow(self, index: int, text: str) -> None:
        if not text:
            return
        text, _ = repair(text)
        part = self._parts[index]
        body: DeltaBody
        if part.kind is PartKind.TOOL_CALL:
            body = ArgumentsDelta(part.size, text)
        else:
            body = TextDelta(part.size, text)
        size = len(text.encode())
        part.pieces.append(text)
        part.size += size
        self._text_bytes += size
        self._unrecorded_bytes += size
        self._tell(index, body)

    def _sign(self, signature: bytes) -> None:
        index = self._speech_part(PartKind.THINKING)
        self._parts[index].signature = signature
        self._tell(index, SignatureDelta(signature))

    def _take_call(self, chunk: ToolCallChunk) -> None:
        index = self._call_parts.get(chunk.index)
        name, _ = repair(chunk.name)
        if index is None:
            part = _GrowingPart(PartKind.TOOL_CALL, call_id=new_id("call"), name=name)
            index = self._open(part)
            self._call_parts[chunk.index] = index
        part = self._parts[index]
        part.name = part.name or name
        part.provider_call_id = part.provider_call_id or repair(chunk.provider_call_id)[0]
        self._grow(index, chunk.arguments)

    def _finish_parts(self) -> None:
        for index in range(len(self._parts)):
            self._finish(index)

    def _finish(self, index: int) -> None:
        part = self._parts[index]
        if not part.finished:
            part.finished = True
            self._tell(index, PartFinished())

    def _tell(self, index: int, body: DeltaBody) -> None:
        self._on_delta(Delta(self.message_id, index, self._run_id, body))

    def _part(self, part: _GrowingPart, *, whole: bool) -> Part:
        text = "".join(part.pieces)
        if part.kind is PartKind.TEXT:
            return TextPart(text)
        if part.kind is PartKind.THINKING:
            return ThinkingPart(text, part.signature)
        if part.document is not None:
            return OpaquePart(part.document)
        return ToolCall(
            call_id=part.call_id,
            name=part.name,
            arguments_json=text or ("{}" if whole else ""),
            provider_call_id=part.provider_call_id,
            display_text=self._label(part.name),
            status=ToolCallStatus.COMPLETE if whole else ToolCallStatus.INCOMPLETE,
        )
