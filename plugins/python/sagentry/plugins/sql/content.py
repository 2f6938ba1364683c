r"""What a row holds, as text that people read with SQL and as the messages of the contract.

Content is kept as protobuf-JSON, never as `jsonb`: NUL travels as `\u0000`, JSON inside (arguments,
documents) is a string and stays verbatim. JSON has no place for fields that this version of the
contract does not know. A row with such fields is kept encoded as well, and then that counts.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from sqlalchemy import Row

from sagentry.api.type.v1 import display_pb2

M = TypeVar("M", bound=Message)

_PARTS = ("content", "tool_info", "metadata")

# Bodies that hold nothing but texts and booleans: nearly all rows. The general conversion is thorough
# and takes three to ten times as long; a list of rows would spend most of its time in it.
_FLAT = frozenset(
    {"text", "thinking", "file_reference", "notification", "error", "tool_call", "tool_result"}
)


class UnreadableError(Exception):
    """What is stored is not what was saved; the text says which part."""


def encoded(row: display_pb2.DisplayMessage) -> dict[str, object]:
    """Returns the columns `content`, `tool_info`, `metadata`, `exact`, `content_kind`, `call_id`."""
    kind = row.content.WhichOneof("body")
    has_call = kind in ("tool_call", "tool_result")
    return {
        "content": _json(row.content),
        "tool_info": _json(row.tool_info) if row.HasField("tool_info") else None,
        "metadata": _json(row.metadata) if row.HasField("metadata") else None,
        "exact": _exact(row),
        "content_kind": kind or "unknown",
        "call_id": getattr(row.content, kind).call_id if kind and has_call else None,
    }


# Any column: the caller selects the whole row.
def decode(stored: Row[tuple[object, ...]], row: display_pb2.DisplayMessage) -> None:
    """Sets content, tool_info and metadata of a row to what is stored.

    Raises:
        UnreadableError: if that is damaged.
    """
    try:
        if stored.exact is not None:
            row.MergeFromString(stored.exact)
            return
        for name in _PARTS:
            text = getattr(stored, name)
            if text is not None:
                _parse(json.loads(text), getattr(row, name))
    except (ValueError, TypeError, AttributeError, DecodeError, json_format.ParseError) as error:
        raise UnreadableError(f"the content of position {stored.position} is damaged") from error


def equal(first: Message, second: Message) -> bool:
    """Says whether two messages of one type hold the same, unknown fields included."""
    return first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def _parse(value: Any, message: Message) -> None:  # noqa: ANN401  what JSON may hold
    message.SetInParent()
    if isinstance(message, display_pb2.DisplayContent):
        for kind in _FLAT & value.keys():
            body = getattr(message, kind)
            body.SetInParent()
            for name, each in value.pop(kind).items():
                setattr(body, name, each)
    json_format.ParseDict(value, message)


def _json(message: Message) -> str:
    return json.dumps(_dict(message), ensure_ascii=False, separators=(",", ":"))


def _dict(message: Message) -> dict[str, Any]:
    if isinstance(message, display_pb2.DisplayContent):
        fields = message.ListFields()
        if len(fields) == 1 and fields[0][0].name in _FLAT:
            ((field, body),) = fields
            return {field.name: {each.name: value for each, value in body.ListFields()}}
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _exact(row: display_pb2.DisplayMessage) -> bytes | None:
    parts = display_pb2.DisplayMessage(content=row.content)
    if row.HasField("tool_info"):
        parts.tool_info.CopyFrom(row.tool_info)
    if row.HasField("metadata"):
        parts.metadata.CopyFrom(row.metadata)
    size = parts.ByteSize()
    known = display_pb2.DisplayMessage()
    known.CopyFrom(parts)
    known.DiscardUnknownFields()
    return None if known.ByteSize() == size else parts.SerializeToString()
