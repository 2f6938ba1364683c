"""The folder of documents: what is in it, and what a document says.

A name that a user wrote is only ever compared with names in the folder, never made part of a path.
"""

from __future__ import annotations

import logging
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIXES = (".md", ".txt")

logger = logging.getLogger(__name__)


class FolderError(Exception):
    """The folder cannot be read; the text is one line that says why."""


class UnreadableError(Exception):
    """A document cannot be read. The text is for people and tells no path."""


class TooLargeError(UnreadableError):
    """A document is over the limit."""


class NotTextError(UnreadableError):
    """A document is not UTF-8 text."""


class DocumentFolder:
    """The documents of one folder: its files whose names end in .md or .txt.

    Files in folders below are not documents, nor are hidden files, files whose names cannot be
    written, and links that lead out of the folder.

    Args:
        path: The folder. It is looked at anew for each message, so edits need no restart.
        max_bytes: Largest document.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes

    @contextmanager
    def opened(self) -> Iterator[OpenedFolder]:
        """Yields the folder as it is now; if it is replaced meanwhile, the old one.

        Raises:
            FolderError: if it is missing, is no folder or may not be read.
        """
        try:
            root = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise FolderError(f"folder {self._path}: {error.strerror}") from error
        try:
            yield OpenedFolder(root, self._path, self._max_bytes)
        finally:
            os.close(root)


class OpenedFolder:
    """The folder at one moment, made by `DocumentFolder.opened`.

    Attributes:
        files: File names of the documents, sorted.
    """

    def __init__(self, root: int, path: Path, max_bytes: int) -> None:
        """Lists the folder. Raises FolderError if it may not be listed."""
        self._root = root
        self._real = os.path.realpath(path)
        self._max_bytes = max_bytes
        try:
            with os.scandir(root) as entries:
                self.files = sorted(entry.name for entry in entries if self._is_document(entry))
        except OSError as error:
            raise FolderError(f"folder {path}: {error.strerror}") from error
        self._named: dict[str, list[str]] = {}
        for file in self.files:
            for key in {_key(file), _key(stem(file))}:
                self._named.setdefault(key, []).append(file)

    def find(self, name: str) -> list[str]:
        """Returns the files that a mention may mean: none, the one, or several.

        Upper and lower case are the same, unless only that tells two files apart. The name may have
        its extension.

        Args:
            name: As the user wrote it.
        """
        found = self._named.get(_key(name), [])
        if len(found) < 2:  # noqa: PLR2004  there is nothing to choose
            return found
        same = unicodedata.normalize("NFC", name)
        exact = [
            file
            for file in found
            if same
            in (unicodedata.normalize("NFC", file), unicodedata.normalize("NFC", stem(file)))
        ]
        whole = [file for file in exact if unicodedata.normalize("NFC", file) == same]
        return whole or exact or found

    def read(self, file: str) -> str:
        """Returns a document's text.

        Args:
            file: One of `files`.

        Raises:
            TooLargeError: if it is over the limit.
            NotTextError: if it is not UTF-8, or holds NUL, as UTF-16 does.
            UnreadableError: if it is gone or may not be read.
        """
        try:
            with os.fdopen(self._open(file), "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise UnreadableError("is not a file")
                content = opened.read(self._max_bytes + 1)
        except OSError as error:
            logger.warning("document %r cannot be read: %s", file, error.strerror)
            raise UnreadableError("cannot be read") from error
        if len(content) > self._max_bytes:
            raise TooLargeError(f"is larger than {_size(self._max_bytes)}")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise NotTextError("is not text in UTF-8") from error
        if "\0" in text:
            raise NotTextError("is not text in UTF-8")
        return text

    def _is_document(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        is_named_so = name.casefold().endswith(SUFFIXES) and not name.startswith(".")
        try:
            is_file = is_named_so and name.isprintable() and entry.is_file()
        except OSError:  # a link that leads in a circle must not hide all others
            return False
        return is_file and (not entry.is_symlink() or self._inside(name) is not None)

    def _inside(self, file: str) -> tuple[str, ...] | None:
        """Returns where a link leads, as steps from the folder; None if it leads out of it."""
        real = os.path.realpath(os.path.join(self._real, file))  # noqa: PTH118  resolves text
        prefix = os.path.join(self._real, "")  # noqa: PTH118  "/" stays "/"
        return tuple(real.removeprefix(prefix).split("/")) if real.startswith(prefix) else None

    def _open(self, file: str) -> int:
        """Opens a document without following any link on the way.

        Links inside the folder are resolved first (mounted configuration is made of them) and the
        steps are walked one by one, so nobody can swap one of them for a link that leads out.
        """
        steps = self._inside(file)
        if steps is None:
            raise UnreadableError("cannot be read")
        # Without O_NONBLOCK, opening a pipe waits for its other end.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        at = os.dup(self._root)
        try:
            for step in steps[:-1]:
                below = os.open(step, flags | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
            return os.open(steps[-1], flags, dir_fd=at)
        finally:
            os.close(at)


def stem(file: str) -> str:
    """Returns the name of a document: its file name without extension."""
    return file.rpartition(".")[0]


def _key(name: str) -> str:
    # Some file systems keep names decomposed; keyboards send them composed.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _size(count: int) -> str:
    kibibytes, rest = divmod(count, 1024)
    return f"{count} bytes" if rest else f"{kibibytes} KiB"
