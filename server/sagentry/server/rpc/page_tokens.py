"""Tokens that name a place in a list; opaque to clients."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from sagentry.server.errors import InvalidInputError

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000


def page_size_of(page_size: int) -> int:
    """Returns how many entries a page has: 1 to 1000, 100 when the request leaves it at 0.

    Raises:
        InvalidInputError: FIELD_INVALID.
    """
    if not 0 <= page_size <= MAX_PAGE_SIZE:
        problem = f"is {page_size} and must be 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}"
        raise InvalidInputError("page_size", problem, limit=MAX_PAGE_SIZE, actual=page_size)
    return page_size or DEFAULT_PAGE_SIZE


def encode_page_token(list_name: str, position: Sequence[str]) -> str:
    """Returns the token of a place.

    Args:
        list_name: The list, its filters included: the token is good for this one only.
        position: What the list needs to find the place again.
    """
    text = json.dumps([list_name, *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_page_token(token: str, list_name: str, *, parts: int) -> tuple[str, ...]:
    """Returns the position that a token names; it has `parts` parts.

    Raises:
        InvalidInputError: PAGE_TOKEN_INVALID; malformed, or of another list.
    """
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        content = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        content = None
    if (
        not isinstance(content, list)
        or len(content) != parts + 1
        or not all(isinstance(part, str) for part in content)
        or content[0] != list_name
    ):
        problem = "is malformed or belongs to another list"
        raise InvalidInputError("page_token", problem, reason="PAGE_TOKEN_INVALID")
    return tuple(content[1:])
