"""The command `sagentry send`: one message, and the answer to it."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from sagentry.api.agent.v1 import agent_pb2
from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.cli.connection import Connection, Exit, complain, require_text, with_connection
from sagentry.cli.output import json_value, print_json
from sagentry.cli.safe_text import safe_text
from sagentry.client import ScopedClient

LONGEST_WAIT = timedelta(seconds=60)
"""What the server grants to one GetRun; a longer run is asked for again."""


@click.command()
@click.argument("agent")
@click.argument("text")
@click.option("--profile", help="Profile of a new agent. Default: the server's `default`.")
@click.option("--request-id", help="Identity of the message: sent twice, it is taken once.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
@with_connection
def send(
    connection: Connection,
    agent: str,
    text: str,
    *,
    profile: str | None,
    request_id: str | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Send TEXT to AGENT and print its answer. `-` reads the text from standard input.

    An agent that sleeps wakes up, one that does not exist is made.

    Exit codes: 0 answered, 1 the server refused or the run did not complete, 2 wrong usage, 3 no server
    answers.
    """
    if text == "-":
        text = _standard_input()

    async def say(scope: ScopedClient) -> None:
        options = pb.StartOptions(profile=profile) if profile else None
        reply = await scope.add_message(agent, text, options=options, request_id=request_id or "")
        if no_wait:
            if as_json:
                print_json(json_value(reply))
            return
        run = await _end_of(scope, agent, reply.run_id)
        if as_json:
            print_json(json_value(run))
        else:
            click.echo(safe_text(answer(run)))
        if run.run.end != agent_pb2.RUN_END_COMPLETED:
            complain(why(run.run))
            sys.exit(Exit.FAILED)

    connection.run(say)


def _standard_input() -> str:
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not {error.encoding} text.") from error
    require_text(text, "standard input")
    return text


async def _end_of(scope: ScopedClient, agent: str, run_id: str) -> pb.GetRunResponse:
    while True:
        run = await scope.get_run(agent, run_id, wait=LONGEST_WAIT)
        if run.run.phase == agent_pb2.RUN_PHASE_ENDED or run.run.end:
            return run


def answer(run: pb.GetRunResponse) -> str:
    """Returns the text of a run's last message; empty if it made none."""
    return "".join(part.text.text for part in run.final_message.parts if part.HasField("text"))


def why(run: agent_pb2.Run) -> str:
    """Returns in words why a run did not complete."""
    end = agent_pb2.RunEnd.Name(run.end).removeprefix("RUN_END_").lower()
    error = f": {run.error.message} [{run.error.reason}]" if run.error.reason else ""
    return f"the run ended as {end}{error}"
