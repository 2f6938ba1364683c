"""The command `sagentry agents`: what is live."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sagentry.api.agent.v1 import agent_pb2
from sagentry.cli.connection import Connection, with_connection
from sagentry.cli.output import json_value, print_json
from sagentry.cli.safe_text import safe_line
from sagentry.cli.status_line import status_word
from sagentry.client import ScopedClient

_PIPED_WIDTH = 200


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print each agent as one line of JSON.")
@with_connection
def agents(connection: Connection, *, as_json: bool) -> None:
    """List the live agents of a tenant. Sleeping ones are in the store and wake with a message.

    Exit codes: 0 listed, 1 the server refused, 2 wrong usage, 3 no server answers.
    """

    async def show(scope: ScopedClient) -> None:
        found = [agent async for agent in scope.list_agents()]
        if as_json:
            for agent in found:
                print_json(json_value(agent))
        elif found:
            print_table(found)
        else:
            click.echo("no agent is live", err=True)

    connection.run(show)


def print_table(found: list[agent_pb2.Agent]) -> None:
    """Prints agents as a table; into a pipe without a terminal's width."""
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("AGENT", "STATUS", "PROFILE", "LAST USED", "TITLE"):
        table.add_column(heading, overflow="fold")
    for agent in found:
        used = agent.last_activity_time.ToDatetime()
        table.add_row(
            Text(safe_line(agent.agent_id)),
            Text(status_word(agent)),
            Text(safe_line(agent.profile)),
            Text(f"{used:%Y-%m-%d %H:%M:%S}Z"),
            Text(safe_line(agent.title)),
        )
    console.print(table)
