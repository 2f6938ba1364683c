"""The command `sagentry serve`."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from pathlib import Path

import click

from sagentry.server.addresses import TcpAddress
from sagentry.server.app import RunningServer, run
from sagentry.server.app_agents import running_agents, with_default_store, with_first_model
from sagentry.server.errors import StartError
from sagentry.server.logs import set_up_logging
from sagentry.server.settings import DEFAULT_PROFILES, Settings
from sagentry.server.settings_sources import SettingsError, load_settings, unknown_variables

EXIT_NOT_STARTED = 1
EXIT_USAGE = 2

logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML file with settings. Environment variables SAGENTRY_… and options are above it.",
)
@click.option("--data-dir", help="Folder of the server's own data.")
@click.option(
    "--listen",
    multiple=True,
    help="unix:/absolute/path or host:port; may be repeated. Port 0 lets the system choose.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow listening off loopback without TLS and authentication.",
)
@click.option("--log-level", help="debug, info, warning or error.")
def serve(
    config: Path | None,
    data_dir: str | None,
    listen: tuple[str, ...],
    insecure: bool,  # noqa: FBT001 click passes options by name
    log_level: str | None,
) -> None:
    """Run the agent server until SIGTERM or Ctrl-C.

    Prints `sagentry: ready on ADDRESS, …` on standard output when it takes calls, and without a
    configuration what to do next; logs go to standard error. Exit codes: 0 ended as asked, 1 could not
    start, 2 wrong usage or settings.
    """
    given = {
        "data_dir": data_dir,
        "listen": list(listen),
        "insecure": insecure,
        "log_level": log_level,
    }
    # The one place that reads the environment of the process.
    environ = os.environ  # noqa: TID251
    try:
        settings = load_settings(config, environ, {k: v for k, v in given.items() if v})
    except SettingsError as error:
        for problem in error.problems:
            _complain(str(problem))
        sys.exit(EXIT_USAGE)
    set_up_logging(settings.log_level, settings.log_format)
    unknown = unknown_variables(environ)
    if unknown:
        logger.warning("environment variables that are no settings", extra={"names": unknown})
    is_first_steps = config is None and not settings.plugins
    if is_first_steps and settings.profiles == DEFAULT_PROFILES:
        settings = with_first_model(settings, environ)

    def announce(server: RunningServer) -> None:
        click.echo(f"sagentry: ready on {', '.join(map(str, server.addresses))}")
        if is_first_steps:
            for line in _next_steps(settings, server):
                click.echo(f"sagentry: {line}")

    try:
        make_agents = functools.partial(running_agents, environ=environ)
        asyncio.run(run(with_default_store(settings), announce, make_agents=make_agents))
    except StartError as error:
        _complain(str(error))
        sys.exit(EXIT_NOT_STARTED)


def _next_steps(settings: Settings, server: RunningServer) -> tuple[str, str, str]:
    """Says what to do with a server that nobody has configured."""
    is_found = settings.data_dir == Settings().data_dir
    where = "" if is_found else f" --server {server.addresses[0]}"
    tcp = [str(address) for address in server.addresses if isinstance(address, TcpAddress)]
    address = tcp[0] if tcp else f"-unix {str(server.addresses[0]).removeprefix('unix:')}"
    return (
        f"talk with an agent:          sagentry chat{where}",
        f"look at the service:         grpcurl -plaintext {address} list",
        f"{_model_of(settings)} answers; for models and plugins of yours: sagentry serve --config FILE",
    )


def _model_of(settings: Settings) -> str:
    model = settings.profiles["default"].model
    return "the demo model" if model == "script:demo" else model


def _complain(text: str) -> None:
    click.echo(f"sagentry: {text}", err=True)
