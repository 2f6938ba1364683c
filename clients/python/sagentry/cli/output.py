"""What programs read: one JSON object a line, on any standard output."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import click
from google.protobuf import json_format
from google.protobuf.message import Message


def json_value(message: Message) -> dict[str, Any]:
    """Returns a message in the contract's JSON form, with the field names of the protos."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def print_json(value: dict[str, Any]) -> None:
    """Prints a value as one line of JSON, which loses nothing whatever the output's encoding is."""
    click.echo(json.dumps(value, ensure_ascii=not _takes_all_text()))


def show_what_cannot_be_written() -> None:
    """Makes standard output and error replace the characters that their encoding lacks.

    Without it an answer with an emoji ends the command where the locale is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _takes_all_text() -> bool:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return encoding.replace("_", "-") in {"utf-8", "utf8"}
