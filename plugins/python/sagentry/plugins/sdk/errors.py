"""What a plugin raises to refuse a call, and how that looks on the wire.

    PluginError
    ├── InvalidFieldError      INVALID_ARGUMENT    FIELD_INVALID      names the field
    ├── ScopeRequiredError     INVALID_ARGUMENT    SCOPE_REQUIRED     no scope, or an unknown kind
    ├── RequestIdReusedError   ALREADY_EXISTS      REQUEST_ID_REUSED  same id, other content
    ├── ScopeDeniedError       PERMISSION_DENIED   SCOPE_DENIED       this scope may not see it
    ├── StaleEpochError        FAILED_PRECONDITION STALE_EPOCH        another server has claimed it
    ├── RevisionConflictError  ABORTED             REVISION_CONFLICT  a newer revision is stored
    ├── StateCorruptError      DATA_LOSS           STATE_CORRUPT      stored data cannot be read
    ├── OverloadedError        UNAVAILABLE         OVERLOADED         not now; has retry_after
    └── QuotaExceededError     RESOURCE_EXHAUSTED  QUOTA_EXCEEDED     a quota or a size

Raise `PluginError` itself for a reason of your own. Expected results (no state, no row, a rejected
message) are outcomes of the response and never errors. Whatever else a handler raises is a fault:
the host gets INTERNAL with an error id, the log gets the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

import grpc
from google.rpc import error_details_pb2, status_pb2

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb

MAX_MESSAGE_BYTES = 1024
MAX_STATUS_BYTES = 3072
"""Limit of an encoded status. The contract allows 4 KiB; the rest is left to base64 and to the
percent-encoded message, because headers over 8 KiB replace the error by another one."""

MAX_FACTS = 16
MAX_FACT_CHARACTERS = 256

_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,62}")


class PluginError(Exception):
    """A call that the plugin refuses on purpose.

    Args:
        code: The status code; what the host does goes by it. Never OK.
        reason: A name of the contract's `ErrorReason` without prefix, or one of your own:
            `[A-Z][A-Z0-9_]{0,62}`.
        message: For logs: the user never sees it. Cut to 1 KiB.
        retry_after: When a repetition makes sense. Sent as `RetryInfo`.
        violations: Fields at fault and what is wrong with each. Sent as `BadRequest`.
        facts: Every number and id of the message. Sent as metadata of `ErrorInfo`; at most 16.

    Raises:
        ValueError: if code or reason is not allowed.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        retry_after: timedelta | None = None,
        violations: Iterable[tuple[str, str]] = (),
        facts: Mapping[str, object] | None = None,
    ) -> None:
        if code is grpc.StatusCode.OK:
            raise ValueError("an error needs a code other than OK")
        if not _REASON.fullmatch(reason):
            raise ValueError(f"reason {reason!r} does not match {_REASON.pattern}")
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.violations = tuple(violations)
        self.facts = {key: str(value) for key, value in (facts or {}).items()}


class InvalidFieldError(PluginError):
    """A field is missing, malformed or over its limit, whatever is stored."""

    def __init__(self, field: str, problem: str, **facts: object) -> None:
        """Names the field by its path, for example `items[0].content`."""
        super().__init__(
            grpc.StatusCode.INVALID_ARGUMENT,
            "FIELD_INVALID",
            f"{field}: {problem}",
            violations=[(field, problem)],
            facts={"field": field, **facts},
        )


class ScopeRequiredError(PluginError):
    """The call carries no scope, or one of an unknown kind."""

    def __init__(self, field: str = "context.scope") -> None:
        problem = "a scope is required: scoped with a tenant, or unscoped"
        super().__init__(
            grpc.StatusCode.INVALID_ARGUMENT,
            "SCOPE_REQUIRED",
            f"{field}: {problem}",
            violations=[(field, problem)],
            facts={"field": field},
        )


class RequestIdReusedError(PluginError):
    """A call with this request_id was accepted before, with other content."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            grpc.StatusCode.ALREADY_EXISTS,
            "REQUEST_ID_REUSED",
            f"request_id {request_id} was used before with other content",
            facts={"request_id": request_id},
        )


class ScopeDeniedError(PluginError):
    """The plugin does not let this scope see the conversation."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            grpc.StatusCode.PERMISSION_DENIED,
            "SCOPE_DENIED",
            f"this scope may not see conversation {conversation_id}",
            facts={"conversation_id": conversation_id},
        )


class StaleEpochError(PluginError):
    """The write's owner_epoch is below the stored one: another server owns the conversation."""

    def __init__(self, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            grpc.StatusCode.FAILED_PRECONDITION,
            "STALE_EPOCH",
            f"epoch {epoch} is below the current epoch {current_epoch}",
            facts={"epoch": epoch, "current_epoch": current_epoch},
        )


class RevisionConflictError(PluginError):
    """The write's revision is below the stored one."""

    def __init__(self, *, revision: int, current_revision: int) -> None:
        super().__init__(
            grpc.StatusCode.ABORTED,
            "REVISION_CONFLICT",
            f"revision {revision} is below the current revision {current_revision}",
            facts={"revision": revision, "current_revision": current_revision},
        )


class StateCorruptError(PluginError):
    """What is stored cannot be read. The host starts nothing and overwrites nothing."""

    def __init__(self, conversation_id: str, problem: str) -> None:
        super().__init__(
            grpc.StatusCode.DATA_LOSS,
            "STATE_CORRUPT",
            f"what is stored of conversation {conversation_id} cannot be read: {problem}",
            facts={"conversation_id": conversation_id},
        )


class OverloadedError(PluginError):
    """The plugin cannot do the work now; the host repeats the call with the same request_id."""

    def __init__(self, problem: str, *, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(
            grpc.StatusCode.UNAVAILABLE,
            "OVERLOADED",
            problem,
            retry_after=retry_after,
            facts={"retry_after_seconds": retry_after.total_seconds()},
        )


class QuotaExceededError(PluginError):
    """A quota is used up, or the content is too large.

    With `retry_after` the host waits and repeats; without it the write is refused for good.
    """

    def __init__(self, *, limit: int, actual: int, retry_after: timedelta | None = None) -> None:
        super().__init__(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            f"{actual} is over the limit of {limit}",
            retry_after=retry_after,
            facts={"limit": limit, "actual": actual},
        )


def status_of(error: PluginError, domain: str) -> status_pb2.Status:
    """Returns the status that goes out: `ErrorInfo` first, at most 3 KiB as a whole.

    What does not fit is left out from the end: field violations, then `RetryInfo`, then facts.

    Args:
        error: What was raised.
        domain: Name of the plugin.
    """
    message = cut(error.message, MAX_MESSAGE_BYTES)
    status = status_pb2.Status(code=number_of(error.code), message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=domain)
    for key, value in _sent_facts(error):
        info.metadata[key] = value
    status.details.add().Pack(info)
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(error.retry_after)
        status.details.add().Pack(retry)
    if error.violations:
        request = error_details_pb2.BadRequest()
        for field, problem in error.violations[:MAX_FACTS]:
            violation = request.field_violations.add()
            violation.field = cut(field, MAX_FACT_CHARACTERS)
            violation.description = cut(problem, MAX_FACT_CHARACTERS)
        status.details.add().Pack(request)
    while status.ByteSize() > MAX_STATUS_BYTES and len(status.details) > 1:
        del status.details[-1]
    while status.ByteSize() > MAX_STATUS_BYTES:
        info.metadata.pop(next(reversed(list(info.metadata))))
        status.details[0].Pack(info)
    return status


def group_error_of(error: PluginError) -> display_pb.WriteGroupError:
    """Returns the error of one group of ApplyWrites, which fails without the others."""
    return display_pb.WriteGroupError(
        code=number_of(error.code),
        reason=error.reason,
        message=cut(error.message, MAX_MESSAGE_BYTES),
        facts=[display_pb.ErrorFact(key=key, value=value) for key, value in _sent_facts(error)],
    )


def number_of(code: grpc.StatusCode) -> int:
    """Returns the number that the code has in `google.rpc.Code`."""
    number: int = code.value[0]  # the stubs leave the value untyped
    return number


def cut(text: str, limit: int) -> str:
    """Returns the text, shortened at a character boundary to `limit` bytes of UTF-8."""
    encoded = text.encode("utf-8", errors="replace")
    return encoded[:limit].decode("utf-8", errors="ignore")


def _sent_facts(error: PluginError) -> list[tuple[str, str]]:
    facts = list(error.facts.items())[:MAX_FACTS]
    return [(key, cut(value, MAX_FACT_CHARACTERS)) for key, value in facts]
