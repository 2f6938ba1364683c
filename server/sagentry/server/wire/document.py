"""Documents: content that is kept verbatim."""

from __future__ import annotations

import json

from sagentry.api.type.v1 import document_pb2
from sagentry.server.domain.messages import Document
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.fields import require_length

JSON_MEDIA_TYPE = "application/json"

MAX_MEDIA_TYPE_LENGTH = 256


def document_to_pb(document: Document) -> document_pb2.Document:
    """Returns the document, its content as it is."""
    if document.json is not None:
        return document_pb2.Document(media_type=document.media_type, json=document.json)
    return document_pb2.Document(media_type=document.media_type, data=document.data or b"")


def json_document(text: str) -> document_pb2.Document:
    """Returns JSON text as a document."""
    return document_pb2.Document(media_type=JSON_MEDIA_TYPE, json=text)


def document_from_pb(message: document_pb2.Document, *, field: str) -> Document:
    """Returns the document, its content as it is and not looked at.

    Raises:
        InvalidInputError: The media type is missing or too long, or the content is unset or of an
            unknown kind.
    """
    if not message.media_type:
        raise InvalidInputError(f"{field}.media_type", "is required")
    require_length(message.media_type, MAX_MEDIA_TYPE_LENGTH, f"{field}.media_type")
    match message.WhichOneof("body"):
        case "json":
            return Document(message.media_type, json=message.json)
        case "data":
            return Document(message.media_type, data=message.data)
        case _:
            raise InvalidInputError(field, "needs json or data")


def json_object_from_pb(message: document_pb2.Document, *, field: str) -> Document:
    """Returns a document that holds one JSON object, verbatim.

    Raises:
        InvalidInputError: As `document_from_pb`, or it holds anything else.
    """
    document = document_from_pb(message, field=field)
    if document.json is None:
        raise InvalidInputError(field, "must hold json")
    if not is_json_object(document.json):
        raise InvalidInputError(f"{field}.json", "must be one JSON object")
    return document


def is_json_object(text: str) -> bool:
    """Says whether a text is one JSON object (RFC 8259)."""
    try:
        # Numbers are not made: Python refuses integers of over 4300 digits, the contract does not.
        value = json.loads(
            text, parse_int=_ignore_number, parse_float=_ignore_number, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _ignore_number(_text: str) -> int:
    return 0


def _refuse(name: str) -> None:
    message = f"{name} is not JSON"
    raise ValueError(message)
