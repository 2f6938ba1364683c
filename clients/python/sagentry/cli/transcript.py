"""The command `sagentry transcript`: a conversation as its store has it."""

from __future__ import annotations

from collections.abc import Callable

import click
from rich.console import Console

from sagentry.api.type.v1 import display_pb2
from sagentry.cli.connection import Connection, with_connection
from sagentry.cli.output import json_value, print_json
from sagentry.cli.rows import as_markdown, as_text, repeats_card, shown
from sagentry.client import ScopedClient

FORMATS = ("text", "markdown", "json")


@click.command()
@click.argument("conversation")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="json prints each row as one line, with all that is stored of it.",
)
@with_connection
def transcript(connection: Connection, conversation: str, *, form: str) -> None:
    """Print the transcript of CONVERSATION: the agent's id, unless it was started with another one.

    It is read from the store through the server; the agent may sleep and is not woken.

    Exit codes: 0 printed, 1 the server refused, 2 wrong usage, 3 no server answers.
    """

    async def show(scope: ScopedClient) -> None:
        printer = Printer(form)
        # Shown only where somebody waits for it, and gone in the end.
        console = Console(stderr=True)
        with console.status("reading the transcript") as status:
            async for row in scope.list_display_messages(conversation):
                printer.print(row)
                if printer.count % 100 == 0:
                    status.update(f"reading the transcript, {printer.count} rows")
        if not printer.count:
            click.echo(f"sagentry: {conversation} has no rows", err=True)

    connection.run(show)


class Printer:
    """Prints rows one after the other.

    Attributes:
        count: How many there were.
    """

    def __init__(self, form: str) -> None:
        self.count = 0
        self._form = form
        self._cards: set[str] = set()

    def print(self, row: display_pb2.DisplayMessage) -> None:
        """Prints a row, unless it repeats what was printed."""
        self.count += 1
        if self._form == "json":
            print_json(json_value(row))
            return
        if repeats_card(row, self._cards):
            return
        if row.content.HasField("tool_call") and row.tool_info.ByteSize():
            self._cards.add(row.content.tool_call.call_id)
        form: Callable[..., str] = as_markdown if self._form == "markdown" else as_text
        click.echo(form(shown(row)))
        if self._form == "markdown":
            click.echo()
