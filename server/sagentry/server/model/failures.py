"""Turns whatever a provider's library raises into a `ModelCallError`, by what all libraries share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from sagentry.server.domain.models import ModelCallError

_BY_STATUS: dict[int, tuple[str, str, bool]] = {
    400: ("MODEL_REQUEST_INVALID", "the provider refused the request as invalid", False),
    401: ("MODEL_AUTHENTICATION", "the provider did not accept the credentials", False),
    402: ("MODEL_AUTHENTICATION", "the provider refused the account", False),
    403: ("MODEL_AUTHENTICATION", "the provider did not permit the call", False),
    404: ("MODEL_REQUEST_INVALID", "the provider does not know the model or address", False),
    408: ("MODEL_UNAVAILABLE", "the provider timed out", True),
    409: ("MODEL_UNAVAILABLE", "the provider reported a conflict", True),
    413: ("MODEL_REQUEST_INVALID", "the request is too large for the provider", False),
    422: ("MODEL_REQUEST_INVALID", "the provider refused the request as invalid", False),
    429: ("MODEL_RATE_LIMITED", "the provider limits the rate of calls", True),
    503: ("MODEL_OVERLOADED", "the provider is overloaded", True),
    529: ("MODEL_OVERLOADED", "the provider is overloaded", True),
}
_CONNECTION_NAMES = {"APIConnectionError", "APITimeoutError", "TransportError", "ClientError"}
_FIRST_ERROR = 400
_FIRST_SERVER_ERROR = 500


def to_model_call_error(error: Exception, model: str) -> ModelCallError:
    """Returns the failure in our words. The library's text may hold content and stays in the cause.

    Args:
        error: What the library raised.
        model: The model's name in the configuration.
    """
    if isinstance(error, ModelCallError):
        return error
    told = _told(error)
    return ModelCallError(
        told.reason,
        f"{model}: {told.message}",
        retryable=told.retryable,
        retry_after=told.retry_after,
    )


def _told(error: Exception) -> ModelCallError:
    chain = list(_chain(error))
    for link in chain:
        # First: behind the beginning of an answer the status is that of the beginning.
        told = _by_type(link)
        if told is not None:
            return told
        status = _status(link)
        if status is not None:
            return _by_status(status, _retry_after(link))
    if any(_is_connection_error(link) for link in chain):
        return ModelCallError("MODEL_UNAVAILABLE", "the provider cannot be reached", retryable=True)
    return ModelCallError("MODEL_FAILED", f"the model call failed with {type(error).__name__}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for holder in (error, response):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return None


_BY_TYPE: dict[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Types of errors that providers send inside an answer, and the status that says the same."""


def _by_type(error: BaseException) -> ModelCallError | None:
    """Reads the error that a provider sent inside its stream, where there is no status for it."""
    status = _status(error)
    body = getattr(error, "body", None)
    if not isinstance(body, Mapping) or (status is not None and status >= _FIRST_ERROR):
        return None
    inner = body.get("error")
    told = inner if isinstance(inner, Mapping) else body
    for key in ("type", "code"):
        meant = _BY_TYPE.get(str(told.get(key)))
        if meant is not None:
            return _by_status(meant, _retry_after(error))
    return ModelCallError("MODEL_UNAVAILABLE", "the provider failed in mid-answer", retryable=True)


def _by_status(status: int, retry_after: timedelta | None) -> ModelCallError:
    reason, words, retryable = _BY_STATUS.get(
        status,
        ("MODEL_UNAVAILABLE", "the provider failed", True)
        if status >= _FIRST_SERVER_ERROR
        else ("MODEL_FAILED", "the provider refused the call", False),
    )
    return ModelCallError(
        reason, f"{words} (status {status})", retryable=retryable, retry_after=retry_after
    )


def _retry_after(error: BaseException) -> timedelta | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name)) * unit
        except (TypeError, ValueError):
            continue
        if 0 <= seconds < 24 * 3600:
            return timedelta(seconds=seconds)
    return None


def _is_connection_error(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & _CONNECTION_NAMES)
