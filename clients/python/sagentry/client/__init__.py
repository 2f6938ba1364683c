"""The client of Sagentry.

    async with Client.connect("unix:sagentry.sock") as client:
        scope = client.scope("acme")
        reply = await scope.add_message("order-17", "Where is my parcel?")
        run = await scope.get_run("order-17", reply.run_id, wait=timedelta(seconds=60))

        async with scope.follow("order-17") as following:
            async for item in following:
                ...  # following.view has the transcript, and what is being written

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
    StreamEndedError,
    UnauthenticatedError,
    UnavailableError,
)
from sagentry.client._follow import (
    Disconnected,
    Follower,
    Following,
    Place,
    RowsDelayed,
    RowsRead,
)
from sagentry.client._growing import GrowingMessage, GrowingPart
from sagentry.client._stream import EventStream
from sagentry.client._view import AgentView

__all__ = [
    "AgentView",
    "Client",
    "ConflictError",
    "DataLossError",
    "DeadlineExceededError",
    "Disconnected",
    "EventStream",
    "FailedPreconditionError",
    "Follower",
    "Following",
    "GrowingMessage",
    "GrowingPart",
    "InternalError",
    "InvalidArgumentError",
    "LimitExceededError",
    "NotFoundError",
    "PermissionDeniedError",
    "Place",
    "RowsDelayed",
    "RowsRead",
    "SagentryError",
    "ScopedClient",
    "StreamEndedError",
    "UnauthenticatedError",
    "UnavailableError",
]
