"""Decides what becomes of a message that mentions documents."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.api.type.v1 import message_pb2
from sagentry.plugins.mention.folder import (
    DocumentFolder,
    FolderError,
    NotTextError,
    OpenedFolder,
    TooLargeError,
    UnreadableError,
    stem,
)
from sagentry.plugins.mention.mentions import find_mentions, written
from sagentry.plugins.sdk import Call, MessagePreprocessor, OverloadedError

UNKNOWN_MENTION = "UNKNOWN_MENTION"
"""No document has that name."""
AMBIGUOUS_MENTION = "AMBIGUOUS_MENTION"
"""Several documents have that name, for example `Plan.md` and `Plan.txt`."""
TOO_MANY_MENTIONS = "TOO_MANY_MENTIONS"
"""More than MAX_DOCUMENTS different documents."""
DOCUMENT_TOO_LARGE = "DOCUMENT_TOO_LARGE"
"""A document is over the limit of the plugin."""
DOCUMENT_NOT_TEXT = "DOCUMENT_NOT_TEXT"
"""A document is not text in UTF-8."""
DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
"""A document is gone or may not be read."""
DOCUMENTS_TOO_LARGE = "DOCUMENTS_TOO_LARGE"
"""With its documents the message would be over what a message may hold."""

SCHEME = "mention"
"""Scheme of the address of a chip: `mention:Quarterly%20report.md`."""

MAX_DOCUMENTS = 32
MAX_TEXT_BYTES = 1024 * 1024
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""Limits of a message, of the contract."""

_MAX_USER_MESSAGE = 1024  # characters; of the contract, as the number of violations
_MAX_VIOLATIONS = 16
_MAX_SHOWN_NAME = 60
_MAX_NAMES_CHARACTERS = 400
_MEDIA_TYPES = {".md": "text/markdown", ".txt": "text/plain"}
_CLOSING_TAG = re.compile(r"</document-?([0-9]*)", re.IGNORECASE)

logger = logging.getLogger(__name__)


class _RejectedError(Exception):
    """The message is rejected: a reason, a text for the user, and (part, problem) of each place."""

    def __init__(
        self, reason: str, user_message: str, violations: Iterable[tuple[int, str]]
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.user_message = user_message
        self.violations = tuple(violations)


@dataclass(frozen=True, slots=True)
class _Named:
    """A name in a message, and the part that has it first."""

    name: str
    part: int


class MentionPreprocessor(MessagePreprocessor):
    """Adds mentioned documents: a chip for people, the text for the model.

    A message without mentions is accepted as it is, without a look at the folder. A mention that
    cannot be fulfilled rejects the message; the reasons are this module's constants.

    Args:
        folder: Where the documents are. All callers, whatever their tenant, may mention all of them.
    """

    def __init__(self, folder: DocumentFolder) -> None:
        self._folder = folder

    def PreprocessMessage(  # noqa: N802  the contract's name
        self, request: pb.PreprocessMessageRequest, call: Call
    ) -> pb.PreprocessMessageResponse:
        """Accepts a message with what it mentions, or rejects it.

        Raises:
            OverloadedError: if the folder cannot be read now.
        """
        response = pb.PreprocessMessageResponse()
        names = _names(request.message)
        if not names:
            response.accepted.SetInParent()
            return response
        try:
            with self._folder.opened() as folder:
                documents = _resolved(names, folder)
                texts = {file: _text(folder, file, part) for file, part in documents.items()}
            response.accepted.CopyFrom(_accepted(request.message, documents, texts))
        except FolderError as error:
            raise OverloadedError(str(error)) from error
        except _RejectedError as error:
            logger.info("message %s rejected: %s", call.request_id, error.reason)
            response.rejected.CopyFrom(_rejection(error))
        return response


def _names(message: message_pb2.Message) -> list[_Named]:
    """Returns each different name once."""
    names: dict[str, _Named] = {}
    for index, part in enumerate(message.parts):
        for mention in find_mentions(part.text.text):
            names.setdefault(mention.name, _Named(mention.name, index))
    return list(names.values())


def _resolved(names: list[_Named], folder: OpenedFolder) -> dict[str, int]:
    """Returns the file of each document and the part that mentions it first, in order of mention."""
    unknown: list[_Named] = []
    documents: dict[str, int] = {}
    for named in names:
        found = folder.find(named.name)
        if not found:
            unknown.append(named)
        elif len(found) > 1:
            raise _ambiguous(named, found)
        else:
            documents.setdefault(found[0], named.part)
    if unknown:
        raise _unknown(unknown, folder.files)
    if len(documents) > MAX_DOCUMENTS:
        text = (
            f"A message may mention {MAX_DOCUMENTS} documents; this one mentions {len(documents)}."
        )
        raise _RejectedError(TOO_MANY_MENTIONS, text, [(max(documents.values()), text)])
    return documents


def _text(folder: OpenedFolder, file: str, part: int) -> str:
    try:
        return folder.read(file)
    except UnreadableError as error:
        reason = DOCUMENT_UNREADABLE
        if isinstance(error, TooLargeError):
            reason = DOCUMENT_TOO_LARGE
        elif isinstance(error, NotTextError):
            reason = DOCUMENT_NOT_TEXT
        text = f"The document {_shown(stem(file))} {error}."
        raise _RejectedError(reason, text, [(part, text)]) from error


def _accepted(
    message: message_pb2.Message, documents: dict[str, int], texts: dict[str, str]
) -> pb.MessageAccepted:
    accepted = pb.MessageAccepted(display_message=message, llm_message=message)
    for file, text in texts.items():
        accepted.llm_message.parts.add().text.text = _delimited(file, text)
    del accepted.display_message.parts[:]
    for index, part in enumerate(message.parts):
        accepted.display_message.parts.append(part)
        for file in (file for file, first in documents.items() if first == index):
            accepted.display_message.parts.add().file.CopyFrom(_chip(file))
    if not (_fits(accepted.llm_message) and _fits(accepted.display_message)):
        text = "With the documents that it mentions the message is too long: mention fewer."
        raise _RejectedError(
            DOCUMENTS_TOO_LARGE, text, [(part, text) for part in sorted(set(documents.values()))]
        )
    return accepted


def _chip(file: str) -> message_pb2.MediaPart:
    """Returns a document as people see it: the server makes a `file_reference` row of it."""
    return message_pb2.MediaPart(
        media_type=_MEDIA_TYPES["." + file.rpartition(".")[2].casefold()],
        name=stem(file),
        url=f"{SCHEME}:{quote(file, safe='')}",
    )


def _delimited(file: str, text: str) -> str:
    """Returns a document as the model reads it, in a tag that its text cannot close.

    The same document always gives the same text: a call may be repeated.
    """
    used = set(_CLOSING_TAG.findall(text))
    number = 0
    while used and (not number or str(number) in used):
        number += 1
    tag = f"document-{number}" if number else "document"
    newline = "" if text.endswith("\n") else "\n"
    return f'<{tag} name="{html.escape(file)}">\n{text}{newline}</{tag}>'


def _fits(message: message_pb2.Message) -> bool:
    encoded = message.ByteSize()
    if encoded <= MAX_TEXT_BYTES:
        return True
    size = sum(len(part.text.text.encode()) for part in message.parts)
    return size <= MAX_TEXT_BYTES and encoded <= MAX_MESSAGE_BYTES


# --- words for users


def _unknown(unknown: list[_Named], files: list[str]) -> _RejectedError:
    names = [_shown(named.name) for named in unknown]
    if len(names) == 1:
        problem = f"There is no document {names[0]}."
    else:
        problem = f"There are no documents {_joined(names)}."
    if files:
        stems = sorted({stem(file) for file in files}, key=str.casefold)
        known = f"Known: {_joined([written(name) for name in stems])}."
    else:
        known = "There are no documents at all."
    # Who pastes `@property` means no document; the way out belongs where it is needed.
    text = f"{problem} {known} An @ that names no document is written \\@."
    places = [(named.part, f"There is no document {_shown(named.name)}.") for named in unknown]
    return _RejectedError(UNKNOWN_MENTION, text, places)


def _ambiguous(named: _Named, files: list[str]) -> _RejectedError:
    choices = _joined([written(file) for file in files])
    text = f"There are several documents {_shown(named.name)}. Write one of: {choices}."
    return _RejectedError(AMBIGUOUS_MENTION, text, [(named.part, text)])


def _shown(name: str) -> str:
    return f"\u201c{_cut(name, _MAX_SHOWN_NAME)}\u201d"


def _joined(names: list[str]) -> str:
    """Joins as many names as a text has room for and counts the others."""
    shown: list[str] = []
    room = _MAX_NAMES_CHARACTERS
    for name in names:
        room -= len(name) + 2
        if room < 0:
            break
        shown.append(name)
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _rejection(error: _RejectedError) -> pb.MessageRejected:
    return pb.MessageRejected(
        reason=error.reason,
        user_message=_cut(error.user_message, _MAX_USER_MESSAGE),
        violations=[
            pb.MessageViolation(field=f"parts[{part}].text", description=problem)
            for part, problem in error.violations[:_MAX_VIOLATIONS]
        ],
    )
