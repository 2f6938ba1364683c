"""What calls raise.

SagentryError
├── InvalidArgumentError      the request is wrong: correct it
├── NotFoundError             no such agent, run, …
├── ConflictError             the request_id was used with other content
├── FailedPreconditionError   right, but not in this state; a rejected message too
├── LimitExceededError        a limit; metadata has `limit` and `actual`
├── UnauthenticatedError      no accepted credentials
├── PermissionDeniedError     not allowed
├── UnavailableError          not now; `retry_after` says when, if the server knows
├── DeadlineExceededError     no answer in time; the outcome is unknown
├── DataLossError             stored data cannot be read
├── StreamEndedError          the server ended a stream, and says why
└── InternalError             a fault of the server or of a plugin, and codes that are not above
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from sagentry.api.agent.v1 import event_service_pb2

DetailT = TypeVar("DetailT", bound=Message)


class SagentryError(Exception):
    """A call failed.

    Attributes:
        code: The status code.
        reason: Why, as a word for programs: a name of `ErrorReason` without its prefix; empty when the
            call never reached the server.
        message: Why, in words for developers.
        metadata: The numbers and ids of the message, as text.
        retry_after: When repeating the call makes sense, if the server said so.
        user_message: A text that may be shown to the user, or empty.
        violations: (field, problem) of each field of the request that is at fault.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        metadata: dict[str, str] | None = None,
        retry_after: timedelta | None = None,
        user_message: str = "",
        violations: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"{reason or code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.metadata = metadata or {}
        self.retry_after = retry_after
        self.user_message = user_message
        self.violations = violations


class InvalidArgumentError(SagentryError):
    """A field of the request is wrong, whatever the state."""


class NotFoundError(SagentryError):
    """What was looked for does not exist, or not in this scope."""


class ConflictError(SagentryError):
    """The request_id was used before, with other content."""


class FailedPreconditionError(SagentryError):
    """The call is right, but not in the state that it met."""


class LimitExceededError(SagentryError):
    """A limit is reached."""


class UnauthenticatedError(SagentryError):
    """The call carries no credentials that the server accepts."""


class PermissionDeniedError(SagentryError):
    """The caller may not do this."""


class UnavailableError(SagentryError):
    """The server, or a plugin that it needs, cannot do it now."""


class DeadlineExceededError(SagentryError):
    """No answer came in time. Whether the call took effect is unknown."""


class DataLossError(SagentryError):
    """Stored data cannot be read; it is not overwritten."""


class InternalError(SagentryError):
    """A fault of the server or of a plugin."""


class StreamEndedError(SagentryError):
    """The server ended a stream of events.

    Attributes:
        may_reconnect: Whether subscribing again with the cursor makes sense.
    """

    def __init__(self, end: event_service_pb2.StreamEnd) -> None:
        """`reason` is the name of a StreamEndReason without its prefix."""
        name = _END_REASONS.Name(end.reason) if end.reason in _END_REASONS.values() else ""
        super().__init__(
            grpc.StatusCode.ABORTED,
            "the server ended the stream",
            reason=name.removeprefix("STREAM_END_REASON_"),
        )
        self.may_reconnect = end.reconnect


_END_REASONS = event_service_pb2.StreamEndReason

_CLASSES: dict[grpc.StatusCode, type[SagentryError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: ConflictError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceededError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
}


def error_from(error: grpc.aio.AioRpcError) -> SagentryError:
    """Returns the error that a failed call is raised as."""
    status = _status_of(error)
    info = _detail(status, error_details_pb2.ErrorInfo)
    retry = _detail(status, error_details_pb2.RetryInfo)
    text = _detail(status, error_details_pb2.LocalizedMessage)
    request = _detail(status, error_details_pb2.BadRequest)
    code = error.code()
    return _CLASSES.get(code, InternalError)(
        code,
        error.details() or "",
        reason=info.reason if info else "",
        metadata=dict(info.metadata) if info else {},
        retry_after=retry.retry_delay.ToTimedelta() if retry else None,
        user_message=text.message if text else "",
        violations=tuple((one.field, one.description) for one in request.field_violations)
        if request
        else (),
    )


def is_transient(error: SagentryError) -> bool:
    """Whether the same call may succeed later although nobody changes anything."""
    if isinstance(error, UnavailableError | DeadlineExceededError):
        return True
    # Neither the server nor a plugin said it: the connection, or a proxy, broke the call.
    return not error.reason and error.code in _CUTS


_CUTS = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


def _status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    try:
        # The function reads code, details and trailers, which an AioRpcError has.
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
    except ValueError:
        # The details contradict the status: a proxy wrote one of them.
        status = None
    return status if status is not None else status_pb2.Status()


def _detail(status: status_pb2.Status, kind: type[DetailT]) -> DetailT | None:
    for packed in status.details:
        detail = kind()
        if packed.Is(detail.DESCRIPTOR) and packed.Unpack(detail):
            return detail
    return None
