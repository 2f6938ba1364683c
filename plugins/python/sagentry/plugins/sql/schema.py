"""The tables. `docs/plugins/sql_store.md` describes them for people who read them with SQL.

Migrations are the truth of what is in a database; a test holds both to be the same.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time in UTC, also in databases that store no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Returns the time in UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Returns the time with its zone."""
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=UTC)


# SQLite numbers rows only in a column that is INTEGER by name.
_KEY = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

conversations = Table(
    "conversations",
    metadata,
    Column("conversation_key", _KEY, primary_key=True),
    # Unscoped data is a namespace by a column of its own: no tenant's name can mean it.
    Column("scope_kind", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("state_epoch", BigInteger, nullable=False),
    Column("owner_id", Text, nullable=False),
    Column("released", Boolean, nullable=False),
    # The last claim and what was answered to it, so that its repetition gets the same answer.
    Column("claim_request_id", Text),
    Column("claim_previous_owner", Text, nullable=False),
    Column("claim_was_released", Boolean, nullable=False),
    # The last write of state; revision 0 means that none is stored.
    Column("state_revision", BigInteger, nullable=False),
    Column("state_revision_epoch", BigInteger, nullable=False),
    Column("state_bytes", BigInteger, nullable=False),
    Column("interrupted", Boolean),
    Column("interrupted_epoch", BigInteger, nullable=False),
    Column("interrupted_revision", BigInteger, nullable=False),
    Column("display_epoch", BigInteger, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("last_change", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # Tombstones: what is deleted leaves its epochs and counters here.
    Column("state_deleted_at", UtcDateTime),
    Column("rows_deleted_at", UtcDateTime),
    UniqueConstraint(
        "scope_kind", "tenant", "partition", "conversation_id", name="uq_conversations_identity"
    ),
    CheckConstraint("scope_kind IN ('scoped', 'unscoped')", name="ck_conversations_scope_kind"),
    CheckConstraint(
        "(scope_kind = 'scoped') = (tenant <> '')", name="ck_conversations_scoped_has_tenant"
    ),
)


def _conversation_key() -> Column[int]:
    return Column(
        "conversation_key",
        BigInteger,
        ForeignKey("conversations.conversation_key"),
        nullable=False,
    )


state_bases = Table(
    "state_bases",
    metadata,
    _conversation_key(),
    Column("revision", BigInteger, nullable=False),
    Column("schema_version", BigInteger, nullable=False),
    Column("lifecycle", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    # CRC-32 of the UTF-8 text; NULL, for example after an edit by hand, is not checked.
    Column("checksum", BigInteger),
    # Fields of the Document that this version does not know, encoded.
    Column("unknown_fields", LargeBinary),
    Column("saved_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("conversation_key", name="pk_state_bases"),
)

state_patches = Table(
    "state_patches",
    metadata,
    _conversation_key(),
    Column("revision", BigInteger, nullable=False),
    # The revision before: a chain with a hole is noticed.
    Column("expected_revision", BigInteger, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("patch", Text, nullable=False),
    Column("checksum", BigInteger),
    Column("unknown_fields", LargeBinary),
    Column("saved_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("conversation_key", "revision", name="pk_state_patches"),
)

display_messages = Table(
    "display_messages",
    metadata,
    _conversation_key(),
    Column("position", BigInteger, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("display_message_id", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("tool_status", Text),
    # Copies of what is in `content`, to find and to read rows by.
    Column("content_kind", Text, nullable=False),
    Column("call_id", Text),
    # Protobuf-JSON with the field names of the contract.
    Column("content", Text, nullable=False),
    Column("tool_info", Text),
    Column("metadata", Text),
    # The three above, encoded, where JSON would lose fields that this version does not know.
    Column("exact", LargeBinary),
    Column("inserted_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("conversation_key", "position", name="pk_display_messages"),
    UniqueConstraint("conversation_key", "change", name="uq_display_messages_change"),
    UniqueConstraint(
        "conversation_key", "message_id", "sequence", name="uq_display_messages_message"
    ),
)
