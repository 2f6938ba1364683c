"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Makes the tables."""
    _make_conversations()
    _make_states()
    _make_display_messages()


def _make_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("conversation_key", _KEY, primary_key=True),
        sa.Column("scope_kind", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("state_epoch", sa.BigInteger, nullable=False),
        sa.Column("owner_id", sa.Text, nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
        sa.Column("claim_request_id", sa.Text),
        sa.Column("claim_previous_owner", sa.Text, nullable=False),
        sa.Column("claim_was_released", sa.Boolean, nullable=False),
        sa.Column("state_revision", sa.BigInteger, nullable=False),
        sa.Column("state_revision_epoch", sa.BigInteger, nullable=False),
        sa.Column("state_bytes", sa.BigInteger, nullable=False),
        sa.Column("interrupted", sa.Boolean),
        sa.Column("interrupted_epoch", sa.BigInteger, nullable=False),
        sa.Column("interrupted_revision", sa.BigInteger, nullable=False),
        sa.Column("display_epoch", sa.BigInteger, nullable=False),
        sa.Column("last_position", sa.BigInteger, nullable=False),
        sa.Column("last_change", sa.BigInteger, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("state_deleted_at", _TIME),
        sa.Column("rows_deleted_at", _TIME),
        sa.UniqueConstraint(
            "scope_kind",
            "tenant",
            "partition",
            "conversation_id",
            name="uq_conversations_identity",
        ),
        sa.CheckConstraint(
            "scope_kind IN ('scoped', 'unscoped')", name="ck_conversations_scope_kind"
        ),
        sa.CheckConstraint(
            "(scope_kind = 'scoped') = (tenant <> '')", name="ck_conversations_scoped_has_tenant"
        ),
    )


def _make_states() -> None:
    op.create_table(
        "state_bases",
        _conversation_key(),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("schema_version", sa.BigInteger, nullable=False),
        sa.Column("lifecycle", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger),
        sa.Column("unknown_fields", sa.LargeBinary),
        sa.Column("saved_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("conversation_key", name="pk_state_bases"),
    )
    op.create_table(
        "state_patches",
        _conversation_key(),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("expected_revision", sa.BigInteger, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("patch", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger),
        sa.Column("unknown_fields", sa.LargeBinary),
        sa.Column("saved_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("conversation_key", "revision", name="pk_state_patches"),
    )


def _make_display_messages() -> None:
    op.create_table(
        "display_messages",
        _conversation_key(),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.Column("display_message_id", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("tool_status", sa.Text),
        sa.Column("content_kind", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("tool_info", sa.Text),
        sa.Column("metadata", sa.Text),
        sa.Column("exact", sa.LargeBinary),
        sa.Column("inserted_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("conversation_key", "position", name="pk_display_messages"),
        sa.UniqueConstraint("conversation_key", "change", name="uq_display_messages_change"),
        sa.UniqueConstraint(
            "conversation_key", "message_id", "sequence", name="uq_display_messages_message"
        ),
    )


def _conversation_key() -> sa.Column[int]:
    return sa.Column(
        "conversation_key",
        sa.BigInteger,
        sa.ForeignKey("conversations.conversation_key"),
        nullable=False,
    )
