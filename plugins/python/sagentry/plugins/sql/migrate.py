"""Brings a database to the newest tables, in one transaction with the check of what is there."""

from __future__ import annotations

import logging
from pathlib import Path

from sqlalchemy import Connection

logger = logging.getLogger(__name__)

REVISIONS = ("0001",)
"""All revisions, oldest first: what this version knows. A test compares them with the files."""

# Private: scripts that Alembic runs, not modules that anybody imports.
_FOLDER = Path(__file__).parent / "_migrations"


class NewerSchemaError(Exception):
    """The database was made by a later version.

    Attributes:
        revision: What it says.
    """

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"its tables are of revision {revision!r}, made by a later version; "
            f"this one knows up to {REVISIONS[-1]!r}"
        )
        self.revision = revision


def check_revision(revision: str | None) -> bool:
    """Says whether a database with that revision, None for no tables, is already at the newest.

    Raises:
        NewerSchemaError: if this version does not know it.
    """
    if revision is not None and revision not in REVISIONS:
        raise NewerSchemaError(revision)
    return revision == REVISIONS[-1]


def migrate(connection: Connection, revision: str | None) -> None:
    """Runs what is missing.

    Args:
        connection: In a transaction that holds the lock for writing.
        revision: What the database says.
    """
    # Imported when there is something to do: it takes a quarter of a second.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    logger.info("tables brought from revision %s to %s", revision, REVISIONS[-1])
