"""The client of Sagentry.

    async with Client.connect("unix:sagentry.sock") as client:
        scope = client.scope("acme")
        reply = await scope.add_message("order-17", "Where is my parcel?")
        run = await scope.get_run("order-17", reply.run_id, wait=timedelta(seconds=60))

Requests are made for you; responses are the messages of the contract (`sagentry.api.agent.v1`). Errors
are `SagentryError`s with the server's reason.
"""

from sagentry.client._client import Client, ScopedClient
from sagentry.client._errors import (
    ConflictError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    LimitExceededError,
    NotFoundError,
    PermissionDeniedError,
    SagentryError,
    UnauthenticatedError,
    UnavailableError,
)
from sagentry.client._stream import EventStream

__all__ = [
    "Client",
    "ConflictError",
    "DataLossError",
    "DeadlineExceededError",
    "EventStream",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "LimitExceededError",
    "NotFoundError",
    "PermissionDeniedError",
    "SagentryError",
    "ScopedClient",
    "UnauthenticatedError",
    "UnavailableError",
]
