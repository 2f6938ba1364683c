"""The command that serves the preprocessor."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from sagentry.plugins.mention.documents import Folder
from sagentry.plugins.mention.preprocessor import MentionPreprocessor
from sagentry.plugins.sdk import DeclarationError, EndpointError, serve

NAME = "sagentry.mention"
VERSION = "0.1.0"
DEFAULT_MAX_BYTES = 256 * 1024


def main() -> None:
    """Serves mentions until SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m sagentry.plugins.mention",
        description="Gives the model the documents that a message mentions as @Name.",
    )
    parser.add_argument(
        "--folder", required=True, type=Path, help="folder of the documents, .md and .txt files"
    )
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=DEFAULT_MAX_BYTES,
        help="largest document, default %(default)s",
    )
    parser.add_argument(
        "--endpoint", help="unix:/path or host:port; default: SAGENTRY_PLUGIN_ENDPOINT"
    )
    given = parser.parse_args()
    if not given.folder.is_dir():
        _fail(f"--folder {given.folder}: there is no such folder")
    if given.max_bytes < 1:
        _fail(f"--max-bytes {given.max_bytes}: must be at least 1")
    logging.basicConfig(level=logging.INFO)
    folder = Folder(given.folder, max_bytes=given.max_bytes)
    try:
        serve(MentionPreprocessor(folder), name=NAME, version=VERSION, endpoint=given.endpoint)
    except (EndpointError, DeclarationError) as error:
        _fail(str(error))


def _fail(problem: str) -> None:
    print(f"sagentry.plugins.mention: error: {problem}", file=sys.stderr)  # noqa: T201 a command
    sys.exit(1)
