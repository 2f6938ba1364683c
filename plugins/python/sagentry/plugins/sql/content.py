r"""What a row holds, as text that people read with SQL and as the messages of the contract.

Content is kept as protobuf-JSON, never as `jsonb`: NUL travels as `\u0000`, JSON inside (arguments,
documents) is a string and stays verbatim. JSON has no place for fields that this version of the
contract does not know. A row with such fields is kept encoded as well, and then that counts.
"""

from __future__ import annotations

import json
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from sqlalchemy import Row

from sagentry.api.type.v1 import display_pb2

M = TypeVar("M", bound=Message)

_PARTS = ("content", "tool_info", "metadata")


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
                json_format.ParseDict(json.loads(text), getattr(row, name))
                getattr(row, name).SetInParent()
    except (ValueError, TypeError, DecodeError, json_format.ParseError) as error:
        raise UnreadableError(f"the content of position {stored.position} is damaged") from error


def equal(first: Message, second: Message) -> bool:
    """Says whether two messages of one type hold the same, unknown fields included."""
    return first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def _json(message: Message) -> str:
    return json.dumps(
        json_format.MessageToDict(message, preserving_proto_field_name=True),
        ensure_ascii=False,
        separators=(",", ":"),
    )


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
