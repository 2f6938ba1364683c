r"""Finds mentions in a text.

A mention is `@Name` or `@"A name of several words"`. A plain name begins with a letter or a digit and may
have letters, digits, `_`, `-`, and dots inside. `@` counts only at the beginning of a word, so that
`someone@example.com` is an address; `\@Name` is the text `@Name` and no mention.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

LONGEST_NAME = 200
"""Characters of a name; what is longer is no mention."""

_MENTION = re.compile(
    r"""
    (?P<escaped>\\@)
    | (?<![\w@/.+\-])@(?:
        "(?P<quoted>[^"\n]{1,200})"
      | (?P<plain>[^\W_](?:[\w\-]|\.(?=\w)){0,199})
    )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention.

    Attributes:
        name: The name as it was written, without quotes.
        begin: Index of the `@`.
    """

    name: str
    begin: int


def find_mentions(text: str) -> list[Mention]:
    """Returns the mentions of a text in their order, repeated ones included."""
    return [
        Mention((match["quoted"] or match["plain"]).strip(), match.start())
        for match in _MENTION.finditer(text)
        if not match["escaped"] and (match["quoted"] or match["plain"]).strip()
    ]


def unescaped(text: str) -> str:
    r"""Returns the text as people mean it: `\@` is `@`."""
    return text.replace("\\@", "@")


def key_of(name: str) -> str:
    """Returns what two names have in common that people take for the same."""
    return unicodedata.normalize("NFC", name).casefold()
