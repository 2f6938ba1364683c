"""The command `sagentry chat`: a conversation with an agent in a terminal."""

from __future__ import annotations

import shutil
import sys

import click
from rich.console import Console

from sagentry.cli.connection import Connection, Exit, complain, with_connection
from sagentry.client import ScopedClient

NARROWEST = 40
"""Columns that a conversation needs."""


@click.command()
@click.argument("agent", default="chat")
@click.option("--profile", help="Profile of a new agent. Default: the server's `default`.")
@with_connection
def chat(connection: Connection, agent: str, *, profile: str | None) -> None:
    """Talk with AGENT (default: `chat`), in a terminal.

    The agent lives on the server: leave with Ctrl-D and come back whenever you like. Ctrl-C cancels what
    the agent is doing and keeps what it has said.

    Exit codes: 0 left, 1 the server refused or ended the stream, 2 no terminal, or one that is too
    narrow, 3 no server answers.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("chat needs a terminal; programs use `sagentry send` and `sagentry transcript`")
        sys.exit(Exit.USAGE)
    if Console().is_dumb_terminal:
        complain("chat needs a terminal that can move its cursor; TERM says that this one cannot")
        sys.exit(Exit.USAGE)
    columns = shutil.get_terminal_size().columns
    if columns < NARROWEST:
        complain(f"the terminal is {columns} columns wide; chat needs {NARROWEST}")
        sys.exit(Exit.USAGE)
    # Not at the top: other commands do not need what a prompt needs.
    from sagentry.cli.chat_session import ChatSession  # noqa: PLC0415

    async def talk(scope: ScopedClient) -> None:
        await ChatSession(scope, agent, profile=profile or "", address=connection.address).run()

    connection.run(talk)
