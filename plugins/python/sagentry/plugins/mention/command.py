"""The command that serves the plugin."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from sagentry.plugins.mention.folder import DocumentFolder, FolderError
from sagentry.plugins.mention.preprocessor import MAX_TEXT_BYTES, MentionPreprocessor
from sagentry.plugins.sdk import serve

NAME = "sagentry.mention"
VERSION = "0.1.0"
DEFAULT_MAX_DOCUMENT_BYTES = 256 * 1024


@click.command(name="sagentry-mention")
@click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder of the documents: its .md and .txt files.",
)
@click.option(
    "--max-document-bytes",
    type=click.IntRange(1, MAX_TEXT_BYTES),
    default=DEFAULT_MAX_DOCUMENT_BYTES,
    show_default=True,
    help="Largest document; a message that mentions a larger one is rejected.",
)
@click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Where to listen, unix:/path or host:port. Default: SAGENTRY_PLUGIN_ENDPOINT.",
)
def main(folder: Path, max_document_bytes: int, endpoint: str | None) -> None:
    """Lets users mention documents of a folder as @Name, until SIGTERM."""
    documents = DocumentFolder(folder, max_bytes=max_document_bytes)
    try:
        with documents.opened():
            pass
    except FolderError as error:
        raise click.ClickException(str(error)) from error
    if not endpoint:
        # A server that has launched it says itself what it does.
        logging.getLogger("sagentry.plugins.sdk").setLevel(logging.WARNING)
    serve(MentionPreprocessor(documents), name=NAME, version=VERSION, endpoint=endpoint)
