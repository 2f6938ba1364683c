"""The command that serves the store."""

from __future__ import annotations

import asyncio
import logging

import click

from sagentry.plugins.sdk import DeclarationError, EndpointError, serve_async
from sagentry.plugins.sql.database import DatabaseError
from sagentry.plugins.sql.servicer import (
    AGENT_CAPABILITIES,
    SqlAgentPersistence,
    SqlDisplayMessagePersistence,
)
from sagentry.plugins.sql.store import Store, open_store

NAME = "sagentry.sql"
VERSION = "0.1.0"


@click.command(name="sagentry-sql")
@click.option(
    "--database",
    required=True,
    metavar="PATH_OR_URL",
    help="A SQLite file, made if it does not exist, or a sqlite:/// address.",
)
@click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Where to listen, unix:/path or host:port. Default: SAGENTRY_PLUGIN_ENDPOINT.",
)
def main(database: str, endpoint: str | None) -> None:
    """Keeps agent state and display messages in a SQL database, until SIGTERM."""
    # A server that has launched it says itself what it does.
    logging.basicConfig(level=logging.INFO if endpoint else logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # what it did is in a line of ours
    try:
        with open_store(database) as store:
            asyncio.run(serve_store(store, endpoint))
    except (DatabaseError, EndpointError, DeclarationError) as error:
        raise click.ClickException(str(error)) from error


async def serve_store(store: Store, endpoint: str | None) -> None:
    """Serves a store until SIGTERM or SIGINT.

    Args:
        store: What to serve.
        endpoint: Where to listen; None asks the environment.

    Raises:
        EndpointError: if the plugin cannot listen there.
    """
    await serve_async(
        SqlAgentPersistence(store),
        SqlDisplayMessagePersistence(store),
        name=NAME,
        version=VERSION,
        capabilities=[AGENT_CAPABILITIES],
        endpoint=endpoint,
    )
