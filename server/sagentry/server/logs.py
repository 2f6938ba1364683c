"""Log lines: their form, and the request id in them."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

request_id_variable: ContextVar[str] = ContextVar("request_id", default="")
"""Request id of the RPC that the current task serves; empty outside of one."""

_STANDARD_ATTRIBUTES = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", (), None)) | {"message": "", "taskName": ""}
)


class RequestIdFilter(logging.Filter):
    """Gives every record the request id of the RPC that it was logged for."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Adds the attribute `request_id` unless there is one; keeps every record."""
        request_id = request_id_variable.get()
        if request_id and not hasattr(record, "request_id"):
            record.request_id = request_id
        return True


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, tz=UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line for people: time, level, logger, message, facts as `key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, with the traceback below it if there is one."""
        facts = "".join(f" {key}={value}" for key, value in _facts(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        # A fact with a line break must not look like a line of its own.
        line = (head + facts).replace("\r", "\\r").replace("\n", "\\n")
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the object; facts are beside `time`, `level`, `logger` and `message`."""
        content: dict[str, object] = {
            **_facts(record),
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


def set_up_logging(
    level: str, form: Literal["text", "json"], *, stream: TextIO | None = None
) -> None:
    """Sends all log lines of the process to one stream, stderr unless told otherwise.

    For the process that the server has to itself; replaces what was set up before.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(RequestIdFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
