"""Tenant context, as the server uses it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class ScopeKind(enum.Enum):
    """Whether a scope names a tenant or the namespace without one."""

    SCOPED = "scoped"
    UNSCOPED = "unscoped"


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """Identity of a scope: what keys, comparisons and logs use.

    Attributes:
        kind: `UNSCOPED` is a namespace of its own; no tenant text can name it.
        tenant: The tenant; empty when unscoped.
        partition: A part of the tenant; empty is a partition like any other.
    """

    kind: ScopeKind
    tenant: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope with the caller's own context for plugins.

    Attributes:
        key: The identity.
        media_type: Media type of `payload`.
        payload: The caller's context: passed on to plugins, never compared, stored or logged.
    """

    key: ScopeKey
    media_type: str = ""
    payload: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """What plugin data, the journal and ownership are keyed by."""

    scope: ScopeKey
    conversation_id: str


@dataclass(frozen=True, slots=True)
class AgentKey:
    """What live agents are keyed by."""

    scope: ScopeKey
    agent_id: str
