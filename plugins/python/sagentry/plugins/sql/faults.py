"""What a failure of the database means to the host. Its own words go to the log, never to a client."""

from __future__ import annotations

from datetime import timedelta

import grpc
from sqlalchemy.exc import DBAPIError

from sagentry.plugins.sdk import OverloadedError, PluginError

_RETRY_AFTER = timedelta(seconds=1)
_RETRY_AFTER_FULL = timedelta(seconds=30)

_FULL = ("SQLITE_FULL",)
_TOO_LARGE = ("SQLITE_TOOBIG",)
_CORRUPT = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_UNAVAILABLE = (
    *_BUSY,
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
    "SQLITE_NOMEM",
    "SQLITE_PERM",
    "SQLITE_PROTOCOL",
)
_NOT_UTF8 = "Could not decode to UTF-8"


def is_busy(error: DBAPIError) -> bool:
    """Says whether another process holds the lock: what was tried was not begun."""
    return _name(error).startswith(_BUSY)


def refusal(error: DBAPIError, *, is_read: bool) -> PluginError | None:
    """Returns the answer to a call that met this failure; None if it is a bug of ours.

    Args:
        error: As SQLAlchemy raised it.
        is_read: Whether the call wanted stored data. Only such a call learns that the data is
            damaged; a write waits in the host's journal until somebody has mended it.
    """
    name = _name(error)
    if name.startswith(_FULL):
        return PluginError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            "the disk of the store is full",
            retry_after=_RETRY_AFTER_FULL,
            facts={"cause": "disk_full"},
        )
    if name.startswith(_TOO_LARGE):
        return PluginError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            "the content is too large for the store",
            facts={"cause": "too_large"},
        )
    if name.startswith(_CORRUPT) or _NOT_UTF8 in str(error.orig):
        if not is_read:
            return OverloadedError("the database is damaged", retry_after=_RETRY_AFTER_FULL)
        return PluginError(
            grpc.StatusCode.DATA_LOSS,
            "STATE_CORRUPT",
            "what is stored cannot be read",
            facts={"cause": "damaged"},
        )
    if name.startswith(_UNAVAILABLE):
        return OverloadedError("the database cannot be used now", retry_after=_RETRY_AFTER)
    return None


def _name(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlite_errorname", "")
