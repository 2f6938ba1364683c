"""Who a call is for, checked and typed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import timedelta

from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.plugins.sdk.errors import InvalidFieldError, ScopeRequiredError

MAX_PAYLOAD_BYTES = 4096

_ID = re.compile(r"[!-~]{1,256}")
_OPTIONAL_ID = re.compile(r"[!-~]{0,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Who a call is for.

    Filter everything that you read and write by `key`. Around ApplyWrites and in PluginService the
    call concerns no tenant: tenant, partition and conversation_id are empty there.

    Attributes:
        tenant: The tenant, 1 to 256 printable characters; empty when the call is unscoped. A
            tenant is never empty, so ("", "") is the namespace of what belongs to no tenant.
        partition: A part of the tenant with data of its own, or empty.
        conversation_id: The storage identity.
        request_id: Identity of the operation, unchanged when the call is repeated.
        owner_epoch: Ownership of the conversation; 0 means no fence.
        agent_id: The live agent. Information: part of no key.
        run_id: The run, or empty. Information.
        media_type: Media type of `payload`.
        payload: The caller's own context for plugins, at most 4 KiB. Never store or log it.
        expires: When the caller stops waiting, by `time.monotonic()`; None if it did not say.
    """

    tenant: str = ""
    partition: str = ""
    conversation_id: str = ""
    request_id: str
    owner_epoch: int = 0
    agent_id: str = ""
    run_id: str = ""
    media_type: str = ""
    payload: bytes = field(default=b"", repr=False)
    expires: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of everything stored: tenant, partition, conversation_id."""
        return (self.tenant, self.partition, self.conversation_id)

    @property
    def is_scoped(self) -> bool:
        """True if the call is for a tenant."""
        return bool(self.tenant)

    def remaining(self) -> timedelta | None:
        """Returns the time until the caller stops waiting, at least zero; None if unknown."""
        if self.expires is None:
            return None
        return timedelta(seconds=max(0.0, self.expires - time.monotonic()))


def call_of(
    context: call_context_pb2.CallContext,
    *,
    path: str = "context",
    concerns_tenant: bool = True,
    seconds_left: float | None = None,
) -> Call:
    """Checks a context and returns it typed.

    The SDK does so for field 1 of every request. Call it yourself for the groups of ApplyWrites.

    Args:
        context: As it came.
        path: Where it stands in the request, for the error: `groups[3].context`.
        concerns_tenant: False around ApplyWrites and in PluginService, where only the request_id
            is required.
        seconds_left: What gRPC says is left of the deadline. The smaller of it and the context's
            own budget counts.

    Raises:
        ScopeRequiredError: if there is no scope, or one of an unknown kind.
        InvalidFieldError: if an id is missing or malformed.
    """
    request_id = checked_id(context.request_id, f"{path}.request_id")
    expires = _expiry(context, seconds_left)
    if not concerns_tenant:
        return Call(request_id=request_id, expires=expires)
    tenant = partition = media_type = ""
    payload = b""
    match context.scope.WhichOneof("kind"):
        case "scoped":
            scoped = context.scope.scoped
            tenant = checked_id(scoped.tenant, f"{path}.scope.scoped.tenant")
            partition = _optional_id(scoped.partition, f"{path}.scope.scoped.partition")
            media_type, payload = scoped.media_type, scoped.payload
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise InvalidFieldError(
                    f"{path}.scope.scoped.payload",
                    f"at most {MAX_PAYLOAD_BYTES} bytes are allowed",
                    limit=MAX_PAYLOAD_BYTES,
                    actual=len(payload),
                )
        case "unscoped":
            pass
        case _:
            raise ScopeRequiredError(f"{path}.scope")
    if context.owner_epoch < 0:
        raise InvalidFieldError(f"{path}.owner_epoch", "must not be negative")
    return Call(
        tenant=tenant,
        partition=partition,
        conversation_id=checked_id(context.conversation_id, f"{path}.conversation_id"),
        request_id=request_id,
        owner_epoch=context.owner_epoch,
        agent_id=_optional_id(context.agent_id, f"{path}.agent_id"),
        run_id=_optional_id(context.run_id, f"{path}.run_id"),
        media_type=media_type,
        payload=payload,
        expires=expires,
    )


def checked_id(value: str, path: str) -> str:
    """Returns the id if it is one: 1 to 256 characters from `!` to `~`.

    Args:
        value: As it came.
        path: Where it stands in the request, for the error.

    Raises:
        InvalidFieldError: if it is missing or malformed.
    """
    if _ID.fullmatch(value):
        return value
    if not value:
        raise InvalidFieldError(path, "required")
    raise InvalidFieldError(path, f"must match {_ID.pattern}")


def _optional_id(value: str, path: str) -> str:
    if not _OPTIONAL_ID.fullmatch(value):
        raise InvalidFieldError(path, f"must match {_OPTIONAL_ID.pattern}")
    return value


def _expiry(context: call_context_pb2.CallContext, seconds_left: float | None) -> float | None:
    budgets = [] if seconds_left is None else [seconds_left]
    if context.HasField("budget"):
        budgets.append(context.budget.seconds + context.budget.nanos / 1e9)
    return time.monotonic() + min(budgets) if budgets else None
