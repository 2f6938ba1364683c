"""A message that is still being written, assembled from deltas."""

from __future__ import annotations

from dataclasses import dataclass, field

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.api.type.v1 import message_pb2


class GapError(Exception):
    """A reader lacks something that the server took as given; only a new snapshot helps."""


@dataclass(slots=True)
class GrowingPart:
    """One part of a growing message.

    Attributes:
        kind: What it is.
        call_id: The call; of a tool call only.
        name: Name of the tool as far as it is known; of a tool call only.
        signature: Signature of a thinking part, once it is there.
        size: Bytes of UTF-8 of the text so far.
    """

    kind: pb.PartKind.ValueType
    call_id: str = ""
    name: str = ""
    signature: bytes = b""
    size: int = 0
    # Joined when somebody looks: adding to one string costs its whole length each time.
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text, the thinking, or the arguments as JSON text, as far as they are."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def grow(self, delta: pb.TextDelta) -> bool:
        """Appends a piece; returns False for one that it has already.

        Raises:
            GapError: What comes before the piece is missing.
        """
        if delta.offset < self.size:
            return False
        if delta.offset > self.size:
            problem = f"a piece begins at byte {delta.offset} of a part of {self.size} bytes"
            raise GapError(problem)
        self._pieces.append(delta.text)
        self.size += len(delta.text.encode())
        return True


@dataclass(slots=True)
class GrowingMessage:
    """A message of the model that is not whole yet.

    Attributes:
        message_id: The message.
        role: Who speaks.
        run_id: The run that makes it.
        parts: What there is of it.
    """

    message_id: str
    role: message_pb2.Role.ValueType
    run_id: str = ""
    parts: list[GrowingPart] = field(default_factory=list)

    @classmethod
    def of(cls, message: message_pb2.Message) -> GrowingMessage:
        """Returns the growing form of a message of a snapshot."""
        return cls(
            message.message_id,
            message.role,
            message.run_id,
            [_growing_part(part) for part in message.parts],
        )

    def apply(self, delta: pb.Delta) -> bool:
        """Takes in a delta; returns False for one that it has already, or does not know.

        Raises:
            GapError: What comes before it is missing.
        """
        kind = delta.WhichOneof("kind")
        if kind == "part_started":
            return self._start_part(delta.part_index, delta.part_started)
        if kind is None:
            return False
        if not delta.part_index < len(self.parts):
            problem = f"message {self.message_id} has no part {delta.part_index}"
            raise GapError(problem)
        part = self.parts[delta.part_index]
        match kind:
            case "text" | "arguments":
                return part.grow(delta.text if kind == "text" else delta.arguments)
            case "signature":
                is_new = part.signature != delta.signature
                part.signature = delta.signature
                return is_new
            case _:
                return True

    def _start_part(self, index: int, started: pb.PartStarted) -> bool:
        if index < len(self.parts):
            part = self.parts[index]
            is_new = part.name != started.name
            # The name of a tool may come in pieces.
            part.name = started.name
            return is_new
        if index > len(self.parts):
            problem = (
                f"part {index} of message {self.message_id} comes after {len(self.parts)} parts"
            )
            raise GapError(problem)
        self.parts.append(GrowingPart(started.kind, started.call_id, started.name))
        return True


def _growing_part(part: message_pb2.Part) -> GrowingPart:
    match part.WhichOneof("content"):
        case "text":
            return _with_text(GrowingPart(pb.PART_KIND_TEXT), part.text.text)
        case "thinking":
            thinking = GrowingPart(pb.PART_KIND_THINKING, signature=part.thinking.signature)
            return _with_text(thinking, part.thinking.text)
        case "tool_call":
            call = part.tool_call
            growing = GrowingPart(pb.PART_KIND_TOOL_CALL, call.call_id, call.name)
            return _with_text(growing, call.arguments_json)
        case _:
            return GrowingPart(pb.PART_KIND_OTHER)


def _with_text(part: GrowingPart, text: str) -> GrowingPart:
    part.grow(pb.TextDelta(offset=0, text=text))
    return part
