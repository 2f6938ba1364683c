"""Gives every RPC an id that client and log share."""

# ruff: noqa: ANN401 messages of any method pass through here
from __future__ import annotations

import uuid
from typing import Any

from sagentry.server.domain.ids import is_valid_id
from sagentry.server.logs import request_id_variable
from sagentry.server.rpc.interceptors.surrounding import (
    Context,
    Proceed,
    RpcMethod,
    SurroundingInterceptor,
)

REQUEST_ID_KEY = "x-request-id"
"""Metadata key, both ways. It names the RPC; a request_id in a message names an operation."""


class RequestIdInterceptor(SurroundingInterceptor):
    """Takes the caller's id or makes one, puts it into log records and the trailing metadata."""

    async def surround(self, _method: RpcMethod, context: Context, proceed: Proceed) -> Any:
        """Serves the RPC under its id."""
        request_id = _given_id(context) or uuid.uuid4().hex
        # Every RPC has a task, and so a context, of its own.
        request_id_variable.set(request_id)
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
        return await proceed(context)


def _given_id(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_KEY:
            # Anything else could forge log lines, or not be sent back.
            return value if isinstance(value, str) and is_valid_id(value) else None
    return None
