"""Text of strangers on a terminal: it must not move the cursor, change colours, or read the clipboard."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"
_PICTURES = 0x2400
# They reorder what stands around them: a reader sees another text than was said.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def safe_text(text: str) -> str:
    """Returns a text with control characters made visible, line breaks and tabs excepted.

    C0 controls become their pictures (ESC is ␛), others the replacement character. Letters, emoji and
    marks of all scripts stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_safe(char) for char in text.replace("\r\n", "\n"))


def safe_line(text: str) -> str:
    """Returns the same on one line."""
    return " ".join(safe_text(text).split())


def _safe(char: str) -> str:
    if char in _KEPT:
        return char
    if char < " ":
        return chr(_PICTURES + ord(char))
    if char == "\x7f":
        return "\u2421"
    if char in _BIDI_CONTROLS or unicodedata.category(char) in {"Cc", "Cs"}:
        return "\ufffd"
    return char
