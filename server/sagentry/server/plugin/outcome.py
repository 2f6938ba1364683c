"""The one decision: what a failure of a plugin call means. Source: plugin_anchors D8, design §4.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from sagentry.server.errors import PluginError, StaleEpochError

LONGEST_TEXT = 1024
"""What is kept of a plugin's own text."""

MOST_FACTS = 16


@dataclass(frozen=True, slots=True)
class Said:
    """What a plugin, or the library in its place, said of a failure.

    Attributes:
        code: Status code as a number; 0 when it answered OK, but wrongly.
        reason: The `ErrorInfo.reason`; empty for none.
        message: Its own text, at most 1 KiB; for logs.
        facts: The `ErrorInfo.metadata`.
    """

    code: int
    reason: str = ""
    message: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The call that failed.

    Attributes:
        plugin: Name of the plugin in the configuration.
        method: The method.
        elapsed: How long it took.
        budget: How long it was allowed to take.
    """

    plugin: str
    method: str
    elapsed: timedelta
    budget: timedelta


_CODES: dict[int, tuple[str, str]] = {
    1: ("PLUGIN_UNAVAILABLE", "cancelled the call"),
    2: ("PLUGIN_FAULT", "failed in an unknown way"),
    3: ("PLUGIN_FAULT", "found the request wrong"),
    4: ("PLUGIN_TIMEOUT", "did not answer in time"),
    5: ("PLUGIN_FAULT", "answered NOT_FOUND, which no method may"),
    6: ("PLUGIN_REFUSED", "refused the call: the request_id was used with other content"),
    7: ("SCOPE_DENIED", "does not let this scope see the conversation"),
    8: ("PLUGIN_REFUSED", "refused the call: too large, or a quota is used up"),
    9: ("PLUGIN_REFUSED", "refused the call"),
    10: ("PLUGIN_REFUSED", "refused the call: a conflict"),
    11: ("PLUGIN_FAULT", "answered OUT_OF_RANGE, which no method may"),
    12: ("PLUGIN_FAULT", "does not implement a method that it declares"),
    13: ("PLUGIN_FAULT", "failed inside"),
    14: ("PLUGIN_UNAVAILABLE", "cannot be reached"),
    15: ("STATE_CORRUPT", "cannot read what is stored"),
    16: ("PLUGIN_REFUSED", "did not accept the server's credentials"),
}

_REASONS: dict[tuple[int, str], tuple[str, str]] = {
    (9, "STALE_EPOCH"): ("STALE_EPOCH", "has a newer owner of the conversation"),
    (10, "REVISION_CONFLICT"): ("REVISION_CONFLICT", "has a newer revision"),
    (14, "OVERLOADED"): ("PLUGIN_UNAVAILABLE", "cannot do it now"),
}


def said_of(error: grpc.aio.AioRpcError) -> Said:
    """Reads a status; details that are malformed or were dropped leave the code alone."""
    code = int(error.code().value[0])
    message = (error.details() or "")[:LONGEST_TEXT]
    try:
        # The stubs know synchronous calls only.
        status: status_pb2.Status | None = rpc_status.from_call(error)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - whatever a plugin sends as details, the code still counts
        status = None
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR):
            try:
                detail.Unpack(info)
            except Exception:  # noqa: BLE001 - as above
                break
            facts = dict(list(info.metadata.items())[:MOST_FACTS])
            return Said(code, info.reason[:LONGEST_TEXT], message, facts)
    return Said(code, "", message)


def failure_of(attempt: Attempt, said: Said) -> PluginError:
    """Returns what a failure means. Every failure of every method comes through here."""
    found = _REASONS.get((said.code, said.reason)) or _CODES.get(
        said.code, ("PLUGIN_FAULT", f"answered with the unknown code {said.code}")
    )
    return _error(attempt, said, *found)


def breach_of(attempt: Attempt, violation: str) -> PluginError:
    """Returns what an answer means that breaks the contract."""
    return _error(attempt, Said(0), "PLUGIN_FAULT", f"broke its contract: {violation}")


def _error(attempt: Attempt, said: Said, reason: str, problem: str) -> PluginError:
    error_class = StaleEpochError if reason == "STALE_EPOCH" else PluginError
    return error_class(
        reason,
        problem,
        plugin=attempt.plugin,
        method=attempt.method,
        elapsed=attempt.elapsed,
        budget=attempt.budget,
        plugin_code=said.code,
        plugin_reason=said.reason,
        plugin_message=said.message,
        facts=said.facts,
    )
