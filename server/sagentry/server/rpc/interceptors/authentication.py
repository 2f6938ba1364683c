"""Nobody gets in whom the Authenticator does not know."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

from typing import Any

from sagentry.server.errors import PermissionDeniedError
from sagentry.server.ports import Authenticator
from sagentry.server.rpc.caller import set_current_caller
from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    Proceed,
    RpcMethod,
    SurroundingInterceptor,
)
from sagentry.server.rpc.names import ADMIN_SERVICE, HEALTH_SERVICE


class AuthenticationInterceptor(SurroundingInterceptor):
    """Finds out who calls; keeps all but admins off the admin service."""

    def __init__(self, authenticator: Authenticator) -> None:
        super().__init__()
        self._authenticator = authenticator

    async def surround(self, method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves the RPC for its caller.

        Raises:
            UnauthenticatedError: By the Authenticator.
            PermissionDeniedError: PERMISSION_DENIED; the admin service wants an admin.
        """
        # Probes of platforms carry no credentials, and learn nothing but "serving".
        if method.service == HEALTH_SERVICE:
            return await proceed(context)
        metadata = tuple(context.invocation_metadata() or ())
        caller = await self._authenticator.authenticate(metadata, context.peer())
        if method.service == ADMIN_SERVICE and not caller.is_admin:
            message = f"{caller.name} may not call {method.full_name}: it is for admins"
            raise PermissionDeniedError("PERMISSION_DENIED", message, method=method.full_name)
        set_current_caller(caller)
        return await proceed(context)
