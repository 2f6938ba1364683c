"""The preprocessor: what people see keeps the mentions, what the model reads has the documents."""

from __future__ import annotations

from dataclasses import dataclass

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.api.type.v1 import message_pb2
from sagentry.plugins.mention.documents import Document, DocumentError, Folder
from sagentry.plugins.mention.mentions import find_mentions, key_of, unescaped
from sagentry.plugins.sdk import Call, MessagePreprocessor

MAX_TEXT_BYTES = 1024 * 1024
"""Most bytes of text in a message: the contract's."""

MAX_VIOLATIONS = 16
"""The contract's."""

MAX_USER_MESSAGE = 1024
"""Most characters of a text for the user: the contract's."""


@dataclass(frozen=True, slots=True)
class _Problem:
    field: str
    error: DocumentError


class MentionPreprocessor(MessagePreprocessor):
    """Gives the model the documents that a message mentions. Synchronous: it reads files.

    Args:
        folder: The documents.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def PreprocessMessage(  # noqa: N802  the contract's name
        self, request: pb.PreprocessMessageRequest, _call: Call
    ) -> pb.PreprocessMessageResponse:
        """Accepts a message with its documents, or says which of them cannot be had."""
        documents, problems = self._look_up(request.message)
        if problems:
            return self._rejected(problems)
        response = pb.PreprocessMessageResponse()
        meant = _unescaped(request.message)
        response.accepted.display_message.CopyFrom(_with_chips(meant, documents))
        response.accepted.llm_message.CopyFrom(_with_texts(meant, documents))
        size = sum(len(one.text.text.encode()) for one in response.accepted.llm_message.parts)
        if size > MAX_TEXT_BYTES:
            return _too_large(documents)
        return response

    def _look_up(self, message: message_pb2.Message) -> tuple[list[Document], list[_Problem]]:
        seen: set[str] = set()
        # By file: @Plan and @plan.md are one document.
        documents: dict[str, Document] = {}
        problems: list[_Problem] = []
        for index, part in enumerate(message.parts):
            for mention in find_mentions(part.text.text):
                if key_of(mention.name) in seen:
                    continue
                seen.add(key_of(mention.name))
                try:
                    document = self._folder.read(mention.name)
                except DocumentError as error:
                    problems.append(_Problem(f"parts[{index}].text.text", error))
                else:
                    documents.setdefault(document.file, document)
        return list(documents.values()), problems

    def _rejected(self, problems: list[_Problem]) -> pb.PreprocessMessageResponse:
        reason = problems[0].error.reason
        text = " ".join(one.error.text for one in problems)
        if reason == "UNKNOWN_DOCUMENT":
            text = f"{text} {self._known()}"
        return _rejection(reason, text, [(one.field, one.error.text) for one in problems])

    def _known(self) -> str:
        names = self._folder.names()
        return f"There is: {', '.join(names)}." if names else "There are no documents."


def _unescaped(message: message_pb2.Message) -> message_pb2.Message:
    changed = message_pb2.Message()
    changed.CopyFrom(message)
    for part in changed.parts:
        if part.HasField("text"):
            part.text.text = unescaped(part.text.text)
    return changed


def _with_chips(message: message_pb2.Message, documents: list[Document]) -> message_pb2.Message:
    """Adds a file for each document: readers show it as a chip."""
    shown = message_pb2.Message()
    shown.CopyFrom(message)
    for one in documents:
        chip = message_pb2.MediaPart(media_type=one.media_type, name=one.name, url=one.file)
        shown.parts.add(file=chip)
    return shown


def _with_texts(message: message_pb2.Message, documents: list[Document]) -> message_pb2.Message:
    """Adds the text of each document, marked as what it is."""
    read = message_pb2.Message()
    read.CopyFrom(message)
    for one in documents:
        tag = "document"
        while f"</{tag}>" in one.text:
            # A document that speaks of documents must not end itself.
            tag += "-"
        name = one.name.replace('"', "'")
        text = f'<{tag} name="{name}">\n{one.text}\n</{tag}>'
        read.parts.add(text=message_pb2.TextPart(text=text))
    return read


def _too_large(documents: list[Document]) -> pb.PreprocessMessageResponse:
    names = ", ".join(one.name for one in documents)
    text = f"The message is too large with these documents: {names}. At most 1 MiB of text."
    return _rejection("DOCUMENT_TOO_LARGE", text, [("parts", text)])


def _rejection(
    reason: str, text: str, violations: list[tuple[str, str]]
) -> pb.PreprocessMessageResponse:
    response = pb.PreprocessMessageResponse()
    response.rejected.reason = reason
    response.rejected.user_message = _cut(text)
    for field, description in violations[:MAX_VIOLATIONS]:
        response.rejected.violations.add(field=field, description=_cut(description))
    return response


def _cut(text: str) -> str:
    return text if len(text) <= MAX_USER_MESSAGE else text[: MAX_USER_MESSAGE - 1] + "…"
