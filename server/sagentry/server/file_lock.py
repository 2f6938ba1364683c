"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileLockedError(Exception):
    """Another process, or another server of this one, has the lock.

    Attributes:
        holder: Who has it, for example `pid 4711`; `another process` when that cannot be read.
    """

    def __init__(self, path: Path, holder: str) -> None:
        """Names the lock file and its holder."""
        super().__init__(f"{path} is locked by {holder}")
        self.holder = holder


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a file, which is made if needed and stays when the lock ends.

    The file is never removed: whoever had it open at that moment would lock a file that nobody
    else can see.

    Raises:
        FileLockedError: Somebody else has it.
        OSError: The file cannot be made or opened.
    """
    # Python opens files close-on-exec, so that child processes do not keep the lock alive.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileLockedError(path, _holder(descriptor)) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return f"pid {text}" if text.isdigit() else "another process"
