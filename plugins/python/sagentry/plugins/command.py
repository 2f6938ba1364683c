"""The commands `sagentry plugin …`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from sagentry.plugins import check as judge
from sagentry.plugins.listing import DEFAULT_ADDRESS, default_server, list_plugins

EXIT_FAILED = 1
EXIT_CANNOT_ATTACH = 2
EXIT_USAGE = 3


class _UsageError(click.UsageError):
    """Wrong usage of `check`, where click's own code 2 says that the plugin cannot be attached."""

    exit_code = EXIT_USAGE


class _CheckCommand(click.Command):
    """A command whose usage errors are of that kind."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401  click's own
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            raise _UsageError(error.format_message(), error.ctx) from error


@click.group()
def plugin() -> None:
    """Show and judge plugins."""


@plugin.command(name="list")
@click.option(
    "--server",
    envvar="SAGENTRY_SERVER",
    help="unix:/path or host:port of the server. Default: $SAGENTRY_SERVER, else the socket in"
    f" the default data folder if there is one, else {DEFAULT_ADDRESS}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--data-home", envvar="XDG_DATA_HOME", hidden=True)
def list_command(*, server: str | None, as_json: bool, data_home: str | None) -> None:
    """Show the configured plugins, and why one is not attached.

    Exit codes: 0 all are attached, 1 some are not, 2 the server cannot be asked.
    """
    sys.exit(list_plugins(server or default_server(data_home), as_json=as_json))


@plugin.command(cls=_CheckCommand)
@click.option("--target", help="unix:/path, host:port, dns:///host:port or exec:COMMAND.")
@click.option(
    "--contract",
    "contracts",
    multiple=True,
    help="Judge this contract only, for example AgentPersistenceService; may be repeated."
    " It fails if the plugin does not declare it. Default: all that it declares.",
)
@click.option(
    "--level",
    type=click.IntRange(min(judge.Level), max(judge.Level)),
    default=max(judge.Level),
    show_default=True,
    help="0 attach, 1 required methods, 2 repetition and faults, 3 fencing and concurrency.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(judge.FORMATS)),
    default="text",
    show_default=True,
    help="Form of the verdict on standard output.",
)
@click.option("--list", "only_list", is_flag=True, help="List the cases instead of running them.")
@click.option(
    "--known-failing",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with ids of cases that are known to fail, one a line, `#` begins a comment. They run;"
    " one that passes fails the check until it is taken out.",
)
def check(
    *,
    target: str | None,
    contracts: tuple[str, ...],
    level: int,
    form: str,
    only_list: bool,
    known_failing: Path | None,
) -> None:
    """Judge a plugin: does it do what the contract says?

    Needs only an address; the plugin may be written in any language. A command is started in a
    private folder and told by SAGENTRY_PLUGIN_ENDPOINT where to listen. Give it a store that may be
    written to: from level 1 on the cases store things, under tenants of their own.

    Exit codes: 0 pass, 1 failures, 2 the plugin cannot be attached, 3 wrong usage.
    """
    try:
        asked = judge.full_names(contracts)
        known = judge.known_failing(known_failing.read_text("utf-8")) if known_failing else None
    except ValueError as error:
        raise _UsageError(str(error)) from error
    cases = judge.selected(judge.ALL, level=judge.Level(level), asked=asked)
    if only_list:
        click.echo(judge.case_list(cases))
        return
    if not target:
        raise _UsageError("Missing option '--target'.")
    try:
        verdict, is_good = asyncio.run(_judge(target, asked, cases, known or frozenset(), form))
    except judge.TargetError as error:
        click.echo(f"sagentry: {error}", err=True)
        sys.exit(EXIT_CANNOT_ATTACH)
    click.echo(verdict)
    if not is_good:
        sys.exit(EXIT_FAILED)


async def _judge(
    target: str,
    asked: frozenset[str],
    cases: tuple[judge.Case, ...],
    known: frozenset[str],
    form: str,
) -> tuple[str, bool]:
    async with judge.attached(target, asked=asked) as session:
        results = [result async for result in judge.run(cases, session, known_failing=known)]
        is_good = not any(result.outcome is judge.Outcome.FAILED for result in results)
        return judge.FORMATS[form](session, results), is_good
