"""Identities: their alphabet, how new ones are made and how derived ones are derived."""

from __future__ import annotations

import hashlib
import re
import uuid

from sagentry.server.domain.scope import ScopeKey

ID_PATTERN = re.compile(r"[!-~]{1,256}")
"""Alphabet and length of every id, tenant and name."""


def is_valid_id(text: str) -> bool:
    """Says whether the text may be an id."""
    return ID_PATTERN.fullmatch(text) is not None


def new_id(prefix: str) -> str:
    """Makes a new random id, for example `run-6f1c…`: 122 random bits, so ids never collide."""
    return f"{prefix}-{uuid.uuid4().hex}"


def derived_message_id(scope: ScopeKey, conversation_id: str, request_id: str) -> str:
    """Derives the id of the message that a request brings.

    The same request always gives the same id, so a repeated call can never make a second row. The
    parts are length-prefixed: no two different triples give the same text to hash.
    """
    hashed = hashlib.sha256()
    for part in (scope.kind.value, scope.tenant, scope.partition, conversation_id, request_id):
        raw = part.encode()
        hashed.update(len(raw).to_bytes(4, "big") + raw)
    return f"msg-{hashed.hexdigest()[:40]}"
