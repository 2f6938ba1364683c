"""The folder of the server's own data."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sagentry.server.domain.ids import is_valid_id, new_id
from sagentry.server.errors import StartError
from sagentry.server.file_lock import FileLockedError, file_lock

LOCK_NAME = "lock"

OWNER_FILE = "owner_id"
"""Holds the server's name as owner of conversations: the same after every restart."""

logger = logging.getLogger(__name__)


def owner_id(folder: Path) -> str:
    """Returns the server's name as owner of conversations; makes one in a new data folder.

    Raises:
        StartError: The file cannot be read or written, or holds no id.
    """
    file = folder / OWNER_FILE
    try:
        if not file.exists():
            fresh = folder / f"{OWNER_FILE}.new"
            fresh.write_text(new_id("server"), encoding="ascii")
            fresh.replace(file)
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be used: {error}"
        raise StartError(message) from error
    if not is_valid_id(text):
        message = f"{file} does not hold an id"
        raise StartError(message)
    return text


@contextmanager
def locked_data_folder(path: Path) -> Iterator[Path]:
    """Makes the folder if needed, for its owner only, and holds it against other servers.

    Raises:
        StartError: Another server has it, or it cannot be made or written.
    """
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                logger.warning("data folder is open to other users", extra={"data_dir": str(path)})
            stack.enter_context(file_lock(path / LOCK_NAME))
        except FileLockedError as error:
            message = f"data folder {path} is in use by another server ({error.holder})"
            raise StartError(message) from error
        except OSError as error:
            message = f"data folder {path} cannot be used: {error.strerror}"
            raise StartError(message) from error
        yield path
