"""Contexts of plugin calls, and checks that all answers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.server.errors import InvalidInputError, LimitExceededError
from sagentry.server.plugin.binding import ContractViolation
from sagentry.server.ports import PluginCall
from sagentry.server.wire.scope import scope_to_pb

REQUEST_OVERHEAD_BYTES = 16 * 1024
"""Room for what a request holds beside its content: ids, the scope's payload, frames."""


def context_to_pb(call: PluginCall) -> call_context_pb2.CallContext:
    """Returns the context of a call; the host adds the budget."""
    return call_context_pb2.CallContext(
        scope=scope_to_pb(call.scope),
        conversation_id=call.conversation_id,
        agent_id=call.agent_id,
        request_id=call.request_id,
        owner_epoch=call.owner_epoch,
        run_id=call.run_id,
    )


class Stored(Protocol):
    """What says whose it is, as its store has it."""

    @property
    def tenant(self) -> str:
        """As stored."""

    @property
    def partition(self) -> str:
        """As stored."""

    @property
    def conversation_id(self) -> str:
        """As stored."""


def check_identity(stored: Stored, call: PluginCall, what: str) -> None:
    """Refuses an answer that is not for whom it was asked.

    Raises:
        ContractViolation: Names the field that differs.
    """
    key = call.scope.key
    for field, found, asked in (
        ("tenant", stored.tenant, key.tenant),
        ("partition", stored.partition, key.partition),
        ("conversation_id", stored.conversation_id, call.conversation_id),
    ):
        if found != asked:
            message = f"{what}.{field} is not the one that was asked for"
            raise ContractViolation(message)


@contextmanager
def converting() -> Iterator[None]:
    """Turns what conversions refuse into a violation: here the plugin is at fault, not a client."""
    try:
        yield
    except (InvalidInputError, LimitExceededError) as error:
        raise ContractViolation(error.message) from error


def outcome_unset() -> ContractViolation:
    """Makes the violation of an answer without an outcome."""
    return ContractViolation("outcome is unset, or of a kind that this server does not know")
