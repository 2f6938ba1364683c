"""The rule for text that cannot be encoded: halves of a surrogate pair are joined, lone ones replaced."""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "\ufffd"
"""What a lone surrogate becomes."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_PAIR_OR_LONE = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")


def repair(text: str) -> tuple[str, int]:
    """Makes text that can be encoded as UTF-8.

    Returns:
        The text with pairs joined and lone surrogates replaced, and how many were replaced.
    """
    if text.isascii() or _SURROGATE.search(text) is None:
        return text, 0
    replaced = 0

    def mend(match: re.Match[str]) -> str:
        nonlocal replaced
        if match.group(1) is not None:
            return match.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        replaced += 1
        return REPLACEMENT

    return _PAIR_OR_LONE.sub(mend, text), replaced


def has_surrogate_escape(json_text: str) -> bool:
    """Says whether JSON text has an escape of a surrogate half, which is legal there."""
    return _ESCAPE.search(json_text) is not None


def repair_object(value: dict[str, Any]) -> dict[str, Any]:
    """Returns a JSON object whose texts can all be encoded."""
    return {repair(key)[0]: _repair_value(inner) for key, inner in value.items()}


def _repair_value(value: object) -> object:
    match value:
        case str():
            return repair(value)[0]
        case dict():
            return repair_object(value)
        case list():
            return [_repair_value(inner) for inner in value]
        case _:
            return value


class SurrogateJoiner:
    """Repairs text that arrives in pieces, where a pair may be split between two of them.

    Attributes:
        replaced: How many lone surrogates were replaced so far.
    """

    def __init__(self) -> None:
        """Starts with nothing held back."""
        self.replaced = 0
        self._held = ""

    def push(self, piece: str) -> str:
        """Takes the next piece and returns what can be passed on, which may be empty."""
        text = self._held + piece
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        text, replaced = repair(text)
        self.replaced += replaced
        return text

    def flush(self) -> str:
        """Ends the text: a half that is still waiting for its other half is replaced."""
        if not self._held:
            return ""
        self._held = ""
        self.replaced += 1
        return REPLACEMENT
