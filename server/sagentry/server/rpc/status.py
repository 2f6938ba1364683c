"""The form in which errors reach clients: `google.rpc.Status` with typed details."""

from __future__ import annotations

from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from sagentry.server.errors import SagentryError

ERROR_DOMAIN = "sagentry"
"""`ErrorInfo.domain` of everything that the server itself says."""

MAX_MESSAGE_BYTES = 1024
"""Longest message, as it is sent: percent-encoded."""

MAX_DETAILS_BYTES = 3072
"""Largest details. The contract allows 4 KiB, but details travel in Base64 beside two copies of the
message, and clients refuse trailers over 8 KiB."""

_MAX_VALUE_BYTES = 512
_MAX_METADATA_BYTES = 1536
_MARK = "…"


def status_of(error: SagentryError) -> status_pb2.Status:
    """Returns the status of an error that the server raised on purpose."""
    status = status_pb2.Status(
        code=error.status_code.value, message=cut(error.message, MAX_MESSAGE_BYTES)
    )
    _add(status, _error_info(error.reason, error.metadata))
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(error.retry_after)
        _add(status, retry)
    if error.user_message:
        # The language is the plugin's choice: "und" is BCP 47 for undetermined.
        text = error_details_pb2.LocalizedMessage(
            locale="und", message=cut(error.user_message, _MAX_VALUE_BYTES)
        )
        _add(status, text)
    if error.violations:
        _add(status, _bad_request(error, MAX_DETAILS_BYTES - _details_bytes(status)))
    return status


def internal_status(error_id: str) -> status_pb2.Status:
    """Returns the status of a fault: nothing but the id under which the log has its cause."""
    status = status_pb2.Status(
        code=code_pb2.INTERNAL, message=f"internal error, its id is {error_id}"
    )
    _add(status, _error_info("INTERNAL", {"error_id": error_id}))
    return status


def cut(text: str, limit: int) -> str:
    """Returns the text as it can be sent, cut to `limit` bytes after percent-encoding.

    gRPC percent-encodes everything in a message but printable ASCII. Lone surrogates become `?`.
    """
    sendable = text.encode("utf-8", "replace").decode()
    if sum(map(_sent_bytes, sendable)) <= limit:
        return sendable
    left = limit - _sent_bytes(_MARK)
    kept = []
    for character in sendable:
        left -= _sent_bytes(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + _MARK


def _sent_bytes(character: str) -> int:
    return 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())


def _error_info(reason: str, metadata: dict[str, str]) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo(reason=reason, domain=ERROR_DOMAIN)
    left = _MAX_METADATA_BYTES
    for key, value in metadata.items():
        sent = cut(value, _MAX_VALUE_BYTES)
        left -= len(key) + len(sent.encode()) + 8
        if left < 0:
            break
        info.metadata[key] = sent
    return info


def _bad_request(error: SagentryError, limit: int) -> error_details_pb2.BadRequest:
    request = error_details_pb2.BadRequest()
    for field, problem in error.violations:
        request.field_violations.add(
            field=cut(field, _MAX_VALUE_BYTES),
            description=cut(problem, _MAX_VALUE_BYTES),
            reason=error.reason,
        )
        # 64 bytes for the type's name and the frame of the detail.
        if request.ByteSize() + 64 > limit:
            del request.field_violations[-1]
            break
    return request


def _add(status: status_pb2.Status, detail: Message) -> None:
    status.details.add().Pack(detail)


def _details_bytes(status: status_pb2.Status) -> int:
    return sum(detail.ByteSize() for detail in status.details)
