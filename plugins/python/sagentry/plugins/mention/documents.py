"""The documents that can be mentioned: the Markdown and text files of one folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sagentry.plugins.mention.mentions import key_of

MEDIA_TYPES = {".md": "text/markdown", ".txt": "text/plain"}


class DocumentError(Exception):
    """A document cannot be given to the model.

    Attributes:
        reason: Why, as a word for programs.
        text: Why, in words for the user.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    Attributes:
        name: Name for people: the file's without its ending.
        file: Name of the file in the folder.
        media_type: What it is.
        text: Its content.
    """

    name: str
    file: str
    media_type: str
    text: str


class Folder:
    """A folder of documents. It is looked at anew for each message, so that changes are seen.

    Only regular files directly in it are documents; a link that leads out of it is none.

    Args:
        path: The folder.
        max_bytes: Largest document.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def names(self) -> list[str]:
        """Returns the names of all documents, sorted."""
        return sorted({path.stem for path in self._files()}, key=key_of)

    def read(self, name: str) -> Document:
        """Reads a document by its name, or by that of its file; upper and lower case are one.

        Raises:
            DocumentError: UNKNOWN_DOCUMENT, AMBIGUOUS_DOCUMENT, DOCUMENT_TOO_LARGE, DOCUMENT_UNREADABLE.
        """
        key = key_of(name)
        files = self._files()
        found = [path for path in files if key_of(path.name) == key]
        found = found or [path for path in files if key_of(path.stem) == key]
        if not found:
            raise DocumentError("UNKNOWN_DOCUMENT", f"There is no document “{name}”.")
        if len(found) > 1:
            files_text = ", ".join(sorted(path.name for path in found))
            raise DocumentError(
                "AMBIGUOUS_DOCUMENT", f"“{name}” may be one of {files_text}: say which."
            )
        return self._read(found[0])

    def _read(self, path: Path) -> Document:
        try:
            with path.open("rb") as file:
                content = file.read(self._max_bytes + 1)
        except OSError as error:
            problem = f"The document “{path.stem}” cannot be read: {error.strerror}."
            raise DocumentError("DOCUMENT_UNREADABLE", problem) from error
        if len(content) > self._max_bytes:
            limit = f"{self._max_bytes // 1024} KiB"
            problem = f"The document “{path.stem}” is larger than {limit}."
            raise DocumentError("DOCUMENT_TOO_LARGE", problem)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"The document “{path.stem}” is not text in UTF-8."
            raise DocumentError("DOCUMENT_UNREADABLE", problem) from error
        return Document(path.stem, path.name, MEDIA_TYPES[path.suffix.lower()], text)

    def _files(self) -> list[Path]:
        root = self._path.resolve()
        try:
            with os.scandir(root) as entries:
                paths = [Path(entry.path) for entry in entries]
        except OSError as error:
            problem = f"The documents cannot be read: {error.strerror}."
            raise DocumentError("DOCUMENT_UNREADABLE", problem) from error
        return [path for path in paths if _is_document(path, root)]


def _is_document(path: Path, root: Path) -> bool:
    if path.suffix.lower() not in MEDIA_TYPES or path.name.startswith("."):
        return False
    try:
        real = path.resolve(strict=True)
        # A pipe in the folder must not hold up everybody who writes to an agent.
        return real.is_relative_to(root) and stat.S_ISREG(real.stat().st_mode)
    except OSError:
        return False
