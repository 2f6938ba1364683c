"""Scopes."""

from __future__ import annotations

import re

from sagentry.api.type.v1 import scope_pb2
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.fields import optional_id, require_id

MAX_PAYLOAD_BYTES = 4096

_MEDIA_TYPE_PATTERN = re.compile(r"[ -~]{0,256}")


def scope_to_pb(scope: Scope) -> scope_pb2.Scope:
    """Returns the scope with its payload."""
    if scope.key.kind is ScopeKind.UNSCOPED:
        return scope_pb2.Scope(unscoped=scope_pb2.Unscoped())
    scoped = scope_pb2.Scoped(
        tenant=scope.key.tenant,
        partition=scope.key.partition,
        media_type=scope.media_type,
        payload=scope.payload,
    )
    return scope_pb2.Scope(scoped=scoped)


def scope_from_pb(message: scope_pb2.Scope, *, field: str = "scope") -> Scope:
    """Returns the scope that a request carries.

    Args:
        message: The field; may be unset.
        field: Its path in the request, for the error.

    Raises:
        InvalidInputError: SCOPE_REQUIRED when it is missing or of a kind that this server does not
            know; FIELD_INVALID when a part is malformed or too long. Never repeats the payload.
    """
    match message.WhichOneof("kind"):
        case "scoped":
            return _scoped(message.scoped, f"{field}.scoped")
        case "unscoped":
            return Scope(ScopeKey(ScopeKind.UNSCOPED))
        case _:
            problem = "is required: set scoped, or unscoped for data that belongs to no tenant"
            raise InvalidInputError(field, problem, reason="SCOPE_REQUIRED")


def _scoped(message: scope_pb2.Scoped, field: str) -> Scope:
    require_id(message.tenant, f"{field}.tenant")
    optional_id(message.partition, f"{field}.partition")
    if _MEDIA_TYPE_PATTERN.fullmatch(message.media_type) is None:
        problem = "must be at most 256 printable ASCII characters"
        raise InvalidInputError(f"{field}.media_type", problem)
    if message.media_type and not message.payload:
        raise InvalidInputError(f"{field}.media_type", "must be empty when there is no payload")
    size = len(message.payload)
    if size > MAX_PAYLOAD_BYTES:
        problem = f"has {size} bytes and at most {MAX_PAYLOAD_BYTES} are allowed"
        raise InvalidInputError(f"{field}.payload", problem, limit=MAX_PAYLOAD_BYTES, actual=size)
    key = ScopeKey(ScopeKind.SCOPED, message.tenant, message.partition)
    return Scope(key, message.media_type, message.payload)
