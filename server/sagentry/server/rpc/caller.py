"""Who calls: the default answer, and where servicers find it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from sagentry.server.ports import Caller

_caller: ContextVar[Caller] = ContextVar("caller")

ANONYMOUS = Caller(name="anonymous", is_service=True, is_admin=True)
"""Everybody, while there is no authentication: a service for all tenants, and admin."""


class AnonymousAuthenticator:
    """Takes every caller for `ANONYMOUS`. Only for loopback and Unix sockets."""

    async def authenticate(
        self,
        metadata: Sequence[tuple[str, str | bytes]],  # noqa: ARG002 the port's signature
        peer: str,  # noqa: ARG002 the port's signature
    ) -> Caller:
        """Returns `ANONYMOUS`."""
        return ANONYMOUS


def current_caller() -> Caller:
    """Returns the caller of the RPC that the current task serves.

    Tasks that a handler starts have it too.

    Raises:
        LookupError: The task serves no authenticated RPC.
    """
    return _caller.get()


def set_current_caller(caller: Caller) -> None:
    """Notes the caller of the RPC that the current task serves; for the interceptor."""
    _caller.set(caller)
