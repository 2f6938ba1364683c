"""The row that every conversation has: ownership, counters, and the key of all its other rows.

Writers lock it first. That lock is what makes counters gap-free and visible in order; in SQLite the
transaction itself, which began IMMEDIATE, holds it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import Connection, Insert, Select, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from sagentry.plugins.sdk import Call, StaleEpochError
from sagentry.plugins.sql.schema import conversations

Contract = Literal["state", "display"]

# What each contract writes. They are served by one store here, and still never write each other's.
_STATE = (
    "state_epoch",
    "owner_id",
    "released",
    "claim_request_id",
    "claim_previous_owner",
    "claim_was_released",
    "state_revision",
    "state_revision_epoch",
    "state_bytes",
    "interrupted",
    "interrupted_epoch",
    "interrupted_revision",
)
_DISPLAY = ("display_epoch", "last_position", "last_change")
# In the order of the fields of Conversation.
_STORED = ("conversation_key", "tenant", "partition", "conversation_id", *_STATE, *_DISPLAY)
_IDENTITY = ("scope_kind", "tenant", "partition", "conversation_id")


@dataclass(slots=True)
class Conversation:
    """A conversation as stored. Change it and pass it to `store`.

    Each contract fences with an epoch of its own, `state_epoch` and `display_epoch`: the two may be
    served by different plugins.
    """

    conversation_key: int
    tenant: str
    partition: str
    conversation_id: str
    state_epoch: int = 0
    owner_id: str = ""
    released: bool = False
    claim_request_id: str | None = None
    claim_previous_owner: str = ""
    claim_was_released: bool = False
    state_revision: int = 0
    state_revision_epoch: int = 0
    state_bytes: int = 0
    interrupted: bool | None = None
    interrupted_epoch: int = 0
    interrupted_revision: int = 0
    display_epoch: int = 0
    last_position: int = 0
    last_change: int = 0

    def fence(self, contract: Contract, epoch: int) -> None:
        """Refuses a write of an earlier owner.

        A higher epoch than the stored one was given by somebody, so it is stored from now on: after
        a backup was restored, no claim may give it a second time.

        Raises:
            StaleEpochError: if the epoch is below the stored one.
        """
        stored = self.state_epoch if contract == "state" else self.display_epoch
        if epoch < stored:
            raise StaleEpochError(epoch=epoch, current_epoch=stored)
        if contract == "state":
            self.state_epoch = epoch
        else:
            self.display_epoch = epoch


def _selected(*, for_update: bool) -> Select[tuple[object, ...]]:
    statement = select(*(conversations.c[name] for name in _STORED)).where(
        *(conversations.c[name] == bindparam(name) for name in _IDENTITY)
    )
    return statement.with_for_update() if for_update else statement


_READ = _selected(for_update=False)
_LOCK = _selected(for_update=True)
_KEY = ("conversation_key", "tenant", "partition", "conversation_id")
_COLUMNS: dict[Contract, tuple[str, ...]] = {"state": _STATE, "display": _DISPLAY}
_UPDATE = {
    contract: update(conversations)
    .where(*(conversations.c[name] == bindparam(f"of_{name}") for name in _KEY))
    .values({name: bindparam(name) for name in names})
    for contract, names in _COLUMNS.items()
}
# If another process made the row meanwhile it stays as it is, and is then read.
_INSERT: dict[str, Insert] = {
    "sqlite": sqlite.insert(conversations).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(conversations).on_conflict_do_nothing(),
}


def read(connection: Connection, call: Call) -> Conversation | None:
    """Returns the conversation of a call without locking it, or None if nothing is stored of it."""
    return _one(connection, _READ, call)


def lock(connection: Connection, call: Call) -> Conversation | None:
    """Locks the conversation of a call until the transaction ends; None if it is not stored."""
    return _one(connection, _LOCK, call)


def lock_or_create(connection: Connection, call: Call) -> Conversation:
    """Locks the conversation of a call, which is stored if it was not."""
    conversation = lock(connection, call)
    if conversation is not None:
        return conversation
    new = asdict(Conversation(0, call.tenant, call.partition, call.conversation_id))
    del new["conversation_key"]
    new["scope_kind"] = _scope_kind(call)
    new["created_at"] = datetime.now(UTC)
    connection.execute(_INSERT.get(connection.dialect.name, insert(conversations)), new)
    conversation = lock(connection, call)
    if conversation is None:
        raise RuntimeError("a conversation vanished while it was made")
    return conversation


def store(connection: Connection, conversation: Conversation, contract: Contract) -> None:
    """Writes the fields of one contract."""
    values = {name: getattr(conversation, name) for name in _COLUMNS[contract]}
    values |= {f"of_{name}": getattr(conversation, name) for name in _KEY}
    connection.execute(_UPDATE[contract], values)


def _one(
    connection: Connection, statement: Select[tuple[object, ...]], call: Call
) -> Conversation | None:
    row = connection.execute(
        statement,
        {
            "scope_kind": _scope_kind(call),
            "tenant": call.tenant,
            "partition": call.partition,
            "conversation_id": call.conversation_id,
        },
    ).one_or_none()
    return None if row is None else Conversation(*row)  # type: ignore[call-arg, arg-type]  # _STORED names its fields


def _scope_kind(call: Call) -> str:
    return "scoped" if call.tenant else "unscoped"
