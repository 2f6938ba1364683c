"""The command `sagentry watch`: follows an agent and shows what it does."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.cli.connection import Connection, with_connection
from sagentry.cli.output import json_value, print_json
from sagentry.cli.rows import as_renderable, as_text
from sagentry.cli.safe_text import safe_line
from sagentry.cli.scroll import Scroll, is_running
from sagentry.cli.status_line import ConnectionState
from sagentry.cli.tail import Tail
from sagentry.client import (
    Disconnected,
    Follower,
    Following,
    RowsDelayed,
    RowsRead,
    ScopedClient,
)

FIELDS: dict[type, str] = {
    pb.Snapshot: "snapshot",
    pb.Event: "event",
    pb.Delta: "delta",
    pb.CaughtUp: "caught_up",
    pb.Lagged: "lagged",
    pb.DebugEvent: "debug",
}


@click.command()
@click.argument("agent")
@click.option("--json", "as_json", is_flag=True, help="Print every item as one line of JSON.")
@click.option(
    "--until-idle", is_flag=True, help="End when no run is under way and nothing is missing."
)
@with_connection
def watch(connection: Connection, agent: str, *, as_json: bool, until_idle: bool) -> None:
    """Follow AGENT: its transcript, and what it is doing.

    Goes on across restarts of the server until Ctrl-C. Watching never wakes an agent.

    Exit codes: 0 it was idle (--until-idle), 1 the server refused or ended the stream, 2 wrong usage,
    3 no server answers, 130 Ctrl-C.
    """

    async def follow(scope: ScopedClient) -> None:
        async with scope.follow(agent) as following:
            if as_json:
                await _print_json(following, until_idle=until_idle)
            elif sys.stdout.isatty():
                await _show(following, until_idle=until_idle)
            else:
                await _print_text(following, until_idle=until_idle)

    connection.run(follow)


def is_idle(following: Follower) -> bool:
    """Whether there is nothing to wait for."""
    view = following.view
    return view.is_complete and not is_running(view) and not view.growing


async def _print_json(following: Follower, *, until_idle: bool) -> None:
    async for item in following:
        print_json(as_json_value(item))
        if until_idle and is_idle(following):
            return


def as_json_value(item: Following) -> dict[str, Any]:
    """Returns an item as in the JSON form of StreamItem; what the client adds has names of its own."""
    match item:
        case RowsRead(rows, is_complete):
            value: Any = {
                "display_messages": [json_value(row) for row in rows],
                "complete": is_complete,
            }
            return {"rows_read": value}
        case RowsDelayed(error, attempt):
            return {"rows_delayed": {"attempt": attempt, "error": str(error)}}
        case Disconnected(error, attempt):
            return {"disconnected": {"attempt": attempt, "error": str(error) if error else ""}}
        case _:
            return {FIELDS[type(item)]: json_value(item)}


async def _print_text(following: Follower, *, until_idle: bool) -> None:
    scroll = Scroll()
    async for item in following:
        scroll.see(item)
        if following.view.is_complete:
            for one in scroll.settled(following.view):
                click.echo(as_text(one))
        complain_of_absence(item)
        if until_idle and is_idle(following):
            return


async def _show(following: Follower, *, until_idle: bool) -> None:
    console = Console()
    scroll = Scroll()
    state = ConnectionState()
    tail = Tail(lambda: scroll.live(following.view), lambda: state.line(following.view))
    with Live(tail, console=console, transient=True, refresh_per_second=12) as live:
        async for item in following:
            scroll.see(item)
            state.see(item)
            if following.view.is_complete:
                for one in scroll.settled(following.view):
                    live.console.print(as_renderable(one))
            if until_idle and is_idle(following):
                return


def complain_of_absence(item: Following) -> None:
    """Says on standard error that the server or the store is away, the first time."""
    if isinstance(item, Disconnected | RowsDelayed) and item.attempt == 1:
        what = "the stream was cut" if isinstance(item, Disconnected) else "no transcript yet"
        why = f": {item.error.message}" if item.error else ""
        click.echo(f"sagentry: {safe_line(what + why)}; trying again", err=True)
    elif isinstance(item, pb.Snapshot) and item.agent.status == agent_pb2.AGENT_STATUS_ABSENT:
        click.echo(f"sagentry: {item.agent.agent_id} does not exist yet; waiting", err=True)
