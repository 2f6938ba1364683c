"""Every error that the server raises on purpose.

    SagentryError
    ├── InvalidInputError         INVALID_ARGUMENT     wrong whatever the state; names the field
    ├── NotFoundError             NOT_FOUND            names what was looked for
    ├── ConflictError             ALREADY_EXISTS       the id was used with other content
    ├── InvalidStateError         FAILED_PRECONDITION  right, but not now
    ├── LimitExceededError        RESOURCE_EXHAUSTED   a limit; has limit and actual
    ├── CorruptDataError          DATA_LOSS            stored data that cannot be read
    ├── UnauthenticatedError      UNAUTHENTICATED      no accepted credentials
    ├── PermissionDeniedError     PERMISSION_DENIED    known caller, not allowed
    ├── UnavailableError          UNAVAILABLE          not now; has retry_after
    ├── NotYetAvailableError      UNIMPLEMENTED        in the contract, not in this version
    └── PluginError               by reason            a plugin failed; names plugin, method, elapsed, budget
        └── StaleEpochError       FAILED_PRECONDITION  another server has claimed the conversation

A class exists because somebody reacts differently to it. `code` and `reason` are what the client sees
(`ErrorReason` in the contract); `metadata` repeats every number and id of the message. What is not a
`SagentryError` is a fault: the client gets INTERNAL with an error id and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from sagentry.server.domain.writes import WriteOutcome

NOT_YET_AVAILABLE = "NOT_YET_AVAILABLE"
"""Reason of methods that are in the contract and not in this version. Not part of the contract: it goes
away with the last such method."""


class Code(enum.Enum):
    """Status codes, with the numbers of `google.rpc.Code`."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class SagentryError(Exception):
    """An error that the server raises on purpose and a client may act on.

    Attributes:
        code: The status code.
        reason: A name of the contract's `ErrorReason` without its prefix.
        metadata: Every number and id of the message, as text.
        retry_after: When repeating the call makes sense, if the server knows.
        user_message: A text that may be shown to the user of the client, or empty.
        violations: (field, problem) of each part of the request that is at fault.
    """

    code: ClassVar[Code] = Code.INTERNAL
    retry_after: timedelta | None = None
    user_message: str = ""
    violations: Sequence[tuple[str, str]] = ()

    def __init__(self, reason: str, message: str, **metadata: object) -> None:
        """Words the error; `message` is lower case, without a full stop, at most 1 KiB."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata: dict[str, str] = {key: str(value) for key, value in metadata.items()}

    @property
    def status_code(self) -> Code:
        """The status code of this very error; that of the class unless a subclass decides by reason."""
        return self.code


class InvalidInputError(SagentryError):
    """A field of the request is wrong, whatever the state."""

    code = Code.INVALID_ARGUMENT

    def __init__(
        self, field: str, problem: str, *, reason: str = "FIELD_INVALID", **metadata: object
    ) -> None:
        """Names the field by its path, for example `message.parts[0].text`."""
        super().__init__(reason, f"{field}: {problem}", field=field, **metadata)
        self.field = field
        self.problem = problem
        self.violations = ((field, problem),)


class NotFoundError(SagentryError):
    """What was looked for does not exist, or not for this caller."""

    code = Code.NOT_FOUND


class ConflictError(SagentryError):
    """An id was used before, with other content."""

    code = Code.ALREADY_EXISTS


class InvalidStateError(SagentryError):
    """The call is right, but not in the state that it met."""

    code = Code.FAILED_PRECONDITION


class LimitExceededError(SagentryError):
    """A limit is reached."""

    code = Code.RESOURCE_EXHAUSTED

    def __init__(
        self, reason: str, message: str, *, limit: int, actual: int, **metadata: object
    ) -> None:
        """Keeps `limit` and `actual` beside the message."""
        super().__init__(reason, message, limit=limit, actual=actual, **metadata)


class CorruptDataError(SagentryError):
    """Stored data cannot be read; it is not overwritten."""

    code = Code.DATA_LOSS


class UnauthenticatedError(SagentryError):
    """The call carries no credentials that the server accepts."""

    code = Code.UNAUTHENTICATED


class PermissionDeniedError(SagentryError):
    """The caller is known and may not do this."""

    code = Code.PERMISSION_DENIED


class UnavailableError(SagentryError):
    """The server cannot do it now, and may later."""

    code = Code.UNAVAILABLE

    def __init__(
        self, reason: str, message: str, *, retry_after: timedelta | None = None, **metadata: object
    ) -> None:
        """Keeps `retry_after`, which the client gets as `RetryInfo`."""
        super().__init__(reason, message, **metadata)
        self.retry_after = retry_after


class NotYetAvailableError(SagentryError):
    """The method is in the contract and not in this version of the server."""

    code = Code.UNIMPLEMENTED

    def __init__(self, method: str) -> None:
        """Names the method by its full path."""
        super().__init__(NOT_YET_AVAILABLE, f"{method} is not available yet", method=method)


PLUGIN_CODES = {
    "PLUGIN_UNAVAILABLE": Code.UNAVAILABLE,
    "PLUGIN_TIMEOUT": Code.DEADLINE_EXCEEDED,
    "PLUGIN_FAULT": Code.INTERNAL,
    "PLUGIN_REFUSED": Code.FAILED_PRECONDITION,
    "PLUGIN_INCOMPATIBLE": Code.FAILED_PRECONDITION,
    "PLUGIN_BEHIND": Code.UNAVAILABLE,
    "STATE_CORRUPT": Code.DATA_LOSS,
    "SCOPE_DENIED": Code.PERMISSION_DENIED,
    "STALE_EPOCH": Code.FAILED_PRECONDITION,
    "REVISION_CONFLICT": Code.ABORTED,
    "MESSAGE_TOO_LARGE": Code.RESOURCE_EXHAUSTED,
}
"""Status code of each reason that a plugin's failure can have towards a client."""


class PluginError(SagentryError):
    """A plugin failed. Only our own words reach the client; the plugin's text is for logs.

    Attributes:
        plugin: Its name in the configuration.
        method: The method, for example `LoadState`.
        elapsed: How long the call took.
        budget: How long it was allowed to take.
        plugin_code: The plugin's status code as a number; 0 when it answered OK, but wrongly.
        plugin_reason: The `ErrorInfo.reason` that the plugin gave, or empty.
        plugin_message: The plugin's own text, at most 1 KiB. Never sent to a client.
        facts: The `ErrorInfo.metadata` that the plugin gave, for example `current_epoch`.
    """

    def __init__(
        self,
        reason: str,
        problem: str,
        *,
        plugin: str,
        method: str,
        elapsed: timedelta,
        budget: timedelta,
        plugin_code: int = 0,
        plugin_reason: str = "",
        plugin_message: str = "",
        facts: dict[str, str] | None = None,
        **metadata: object,
    ) -> None:
        """Words the error: `plugin store: LoadState: <problem> (after 12 ms of 5000 ms)`."""
        elapsed_ms = round(elapsed / timedelta(milliseconds=1))
        budget_ms = round(budget / timedelta(milliseconds=1))
        super().__init__(
            reason,
            f"plugin {plugin}: {method}: {problem} (after {elapsed_ms} ms of {budget_ms} ms)",
            plugin=plugin,
            method=method,
            elapsed_ms=elapsed_ms,
            budget_ms=budget_ms,
            **({"plugin_reason": plugin_reason} if plugin_reason else {}),
            **metadata,
        )
        self.plugin = plugin
        self.method = method
        self.elapsed = elapsed
        self.budget = budget
        self.plugin_code = plugin_code
        self.plugin_reason = plugin_reason
        self.plugin_message = plugin_message
        self.facts = facts or {}

    @property
    def status_code(self) -> Code:
        """The code that belongs to the reason."""
        return PLUGIN_CODES.get(self.reason, Code.INTERNAL)


class StaleEpochError(PluginError):
    """A write was refused because another server has claimed the conversation."""


class PartialWriteError(Exception):
    """Of several writes only the first ones were done.

    Attributes:
        outcomes: Outcomes of the writes that were done, in order; may be empty.
        failure: Why the next one was not done.
    """

    def __init__(self, outcomes: Sequence[WriteOutcome], failure: PluginError) -> None:
        """Keeps what was done beside the failure."""
        super().__init__(str(failure))
        self.outcomes = tuple(outcomes)
        self.failure = failure


class ToolError(Exception):
    """A tool failed; its text is read by the model and by people."""


class StartError(Exception):
    """The server cannot start, for a reason outside of it; the text is one line for its operator."""
