"""Finds the mentions of a text: `@Name` and `@"Name of several words"`.

Whatever the text, the work grows with its length only: it is a user's, up to 1 MiB of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

MAX_NAME_CHARACTERS = 255
"""Longest quoted name; no file name is longer. A quotation mark further away ends nothing."""

_CLOSERS = {'"': '"', "\u201c": "\u201d", "\u201e": "\u201c\u201d"}
"""What ends a quoted name, by what begins it: telephones write other marks than keyboards."""

_JOINERS = "\u200c\u200d"  # part of words in several scripts
_ADDRESS_MARKS = "._%+-"  # may stand before the @ of an e-mail address

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t\r]*(?=\n)")
_BACKTICKS = re.compile(r"`+")
_URL = re.compile(r"://\S+")


@dataclass(frozen=True, slots=True)
class Mention:
    """One mention.

    Attributes:
        name: The name, without marks around it.
        start: Where its `@` stands.
    """

    name: str
    start: int


def find_mentions(text: str) -> list[Mention]:
    r"""Returns the mentions of a text in their order.

    Not mentions are an `@` that belongs to an e-mail address, a handle (`@ada@example.org`) or a URL,
    stands in Markdown code, follows another `@` or a `/`, or is escaped as in `\@name`.

    Args:
        text: A user's text, in Markdown.
    """
    start = text.find("@")
    if start < 0:
        return []
    is_literal = _literal(text)
    mentions: list[Mention] = []
    while start >= 0:
        end = start + 1
        if not is_literal[start] and _may_begin(text, start):
            name, end = _name_at(text, start + 1)
            if name and not _is_address(text, start, name):
                mentions.append(Mention(name, start))
        start = text.find("@", end)
    return mentions


def written(name: str) -> str:
    """Returns how one mentions a document of this name."""
    if _name_at(name, 0) == (name, len(name)):
        return f"@{name}"
    return f'@"{name}"' if '"' not in name else f"@\u201c{name}\u201d"


def _may_begin(text: str, start: int) -> bool:
    before = text[start - 1] if start else " "
    if before == "\\":
        return _is_even_run(text, start)
    return not (before in "@/" or _is_word(before))


def _is_even_run(text: str, end: int) -> bool:
    """Says whether an even number of backslashes stands before a place: they escape one another."""
    begin = end
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return (end - begin) % 2 == 0


def _name_at(text: str, start: int) -> tuple[str, int]:
    """Returns the name that begins there and where it ends; an empty one if none does."""
    opener = text[start : start + 1]
    if opener in _CLOSERS:
        return _quoted(text, start + 1, _CLOSERS[opener])
    end = start
    while end < len(text) and _continues(text, start, end):
        end += 1
    if text[end : end + 1] == "@":
        return "", end
    return text[start:end].rstrip("-_."), end


def _quoted(text: str, start: int, closers: str) -> tuple[str, int]:
    most = start + MAX_NAME_CHARACTERS + 1
    ends = [end for end in (text.find(mark, start, most) for mark in closers) if end >= 0]
    if not ends or "\n" in text[start : min(ends)]:
        return "", start
    return text[start : min(ends)].strip(), min(ends) + 1


def _continues(text: str, start: int, at: int) -> bool:
    character = text[at]
    if _is_word(character) or character == "_":
        return True
    if at == start:
        return False
    if character == ".":  # of an extension; at the end of a sentence it is none of the name
        following = text[at + 1 : at + 2]
        return following == "_" or _is_word(following)
    return character == "-" or character in _JOINERS


def _is_word(character: str) -> bool:
    # Marks: vowels of many scripts, accents of decomposed letters. str.isalnum knows neither.
    return character.isalnum() or (
        character > "\u02ff" and unicodedata.category(character).startswith("M")
    )


def _is_address(text: str, start: int, name: str) -> bool:
    """Says whether this is the rest of an address as `jobs-@example.org`."""
    begin = start
    while begin and text[begin - 1] in _ADDRESS_MARKS:
        begin -= 1
    return 0 < begin < start and _is_word(text[begin - 1]) and "." in name


def _literal(text: str) -> bytearray:
    """Returns for each character whether it is code or part of a URL, where `@` means itself."""
    mask = bytearray(len(text))
    for start, end in _literal_spans(text):
        mask[start:end] = b"\1" * (end - start)
    return mask


def _literal_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _URL.finditer(text):
        yield match.span()
    if "`" not in text and "~" not in text:
        return
    prose = 0
    opened: tuple[str, int] | None = None
    for fence in _FENCE.finditer(text):
        marks, rest = fence.groups()
        if opened is None:
            if marks[0] == "`" and "`" in rest:
                continue  # code inside a line that begins with it
            yield from _code_spans(text, prose, fence.start())
            opened = (marks, fence.start())
        elif marks.startswith(opened[0]) and not rest.strip():
            yield opened[1], fence.end()
            prose, opened = fence.end(), None
    if opened is None:
        yield from _code_spans(text, prose, len(text))
    else:
        yield opened[1], len(text)  # a fence without end holds all that follows


def _code_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the code inside paragraphs: between runs of equally many backticks."""
    for blank in _BLANK_LINE.finditer(text, start, end):
        yield from _code_of_paragraph(text, start, blank.start())
        start = blank.end()
    yield from _code_of_paragraph(text, start, end)


def _code_of_paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    runs = [run.span() for run in _BACKTICKS.finditer(text, start, end)]
    closing: dict[int, int] = {}  # the next run of a length, seen from the end
    partners: list[int | None] = [None] * len(runs)
    for index in range(len(runs) - 1, -1, -1):
        length = runs[index][1] - runs[index][0]
        partners[index] = closing.get(length)
        closing[length] = index
    index = 0
    while index < len(runs):
        partner = partners[index]
        if partner is not None:
            yield runs[index][0], runs[partner][1]
            index = partner
        index += 1
