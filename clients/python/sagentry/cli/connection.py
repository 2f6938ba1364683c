"""What the commands that talk to a server have in common: options, connection, errors, exit codes."""

from __future__ import annotations

import asyncio
import enum
import functools
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from sagentry.cli.safe_text import safe_line
from sagentry.client import (
    Client,
    DeadlineExceededError,
    SagentryError,
    ScopedClient,
    UnavailableError,
)

DEFAULT_ADDRESS = "127.0.0.1:7433"
PATIENCE = timedelta(seconds=3)
"""How long a server may take for its first answer."""


class Exit(enum.IntEnum):
    """Exit codes of the commands that talk to a server."""

    OK = 0
    FAILED = 1
    """The server refused the call, or the run failed."""
    USAGE = 2
    """The command line is wrong, or the terminal cannot do it."""
    UNREACHABLE = 3
    """No server answers."""
    INTERRUPTED = 130
    """Ctrl-C."""


class Connection:
    """Where the server is and whose agents are meant."""

    def __init__(self, *, server: str, tenant: str, partition: str) -> None:
        self.address = server
        self.tenant = tenant
        self.partition = partition

    def run(self, work: Callable[[ScopedClient], Awaitable[None]]) -> None:
        """Does the work with a client, and ends the process with the right code if that fails."""
        try:
            asyncio.run(self._run(work))
        except SagentryError as error:
            complain(explained(error, self.address))
            sys.exit(Exit.UNREACHABLE if is_unreachable(error) else Exit.FAILED)
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            # Whoever reads has seen enough, as `head` does.
            sys.stderr.close()
            sys.exit(Exit.FAILED)

    async def _run(self, work: Callable[[ScopedClient], Awaitable[None]]) -> None:
        async with Client.connect(self.address) as client:
            scope = self.scope(client)
            await _require_server(scope)
            await work(scope)

    def scope(self, client: Client) -> ScopedClient:
        """Returns the client of the chosen scope."""
        if self.tenant:
            return client.scope(self.tenant, self.partition)
        return client.unscoped()


_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


def with_connection(command: _CommandT) -> _CommandT:
    """Gives a command the options of a connection, and passes it as its first argument."""

    @click.option(
        "--server",
        envvar="SAGENTRY_SERVER",
        help="unix:/path or host:port. Default: $SAGENTRY_SERVER, else the socket in the default data"
        f" folder if there is one, else {DEFAULT_ADDRESS}.",
    )
    @click.option(
        "--tenant", envvar="SAGENTRY_TENANT", help="Tenant. Default: $SAGENTRY_TENANT, else none."
    )
    @click.option(
        "--partition",
        envvar="SAGENTRY_PARTITION",
        help="Partition of the tenant. Default: $SAGENTRY_PARTITION, else none.",
    )
    @click.option("--data-home", envvar="XDG_DATA_HOME", hidden=True)
    @functools.wraps(command)
    def connected(
        *,
        server: str | None,
        tenant: str | None,
        partition: str | None,
        data_home: str | None,
        **options: object,
    ) -> object:
        if partition and not tenant:
            raise click.UsageError("--partition needs --tenant.")
        for name, value in {
            "server": server,
            "tenant": tenant,
            "partition": partition,
            **options,
        }.items():
            require_text(value, name.upper())
        connection = Connection(
            server=server or default_server(data_home),
            tenant=tenant or "",
            partition=partition or "",
        )
        return command(connection, **options)

    return connected  # type: ignore[return-value]  # click's decorators keep the kind of a function


def require_text(value: object, name: str) -> None:
    """Refuses a string that came from bytes which are no text in the encoding of the locale.

    Raises:
        click.UsageError: names it.
    """
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise click.UsageError(f"{name} is not {sys.getfilesystemencoding()} text.")


def default_server(data_home: str | None) -> str:
    """Returns the address of the server of this user.

    Args:
        data_home: XDG_DATA_HOME; a relative one is ignored, as its specification says.
    """
    home = Path(data_home or "")
    if not home.is_absolute():
        home = Path("~/.local/share").expanduser()
    path = home / "sagentry" / "sagentry.sock"
    return f"unix:{path}" if path.is_socket() else DEFAULT_ADDRESS


async def _require_server(scope: ScopedClient) -> None:
    """Raises SagentryError unless a server answers: other calls would wait for it for long.

    Raises:
        UnavailableError: if none does, also when something listens there and says nothing.
    """
    try:
        async for _ in scope.list_agents(page_size=1, timeout=PATIENCE):
            return
    except DeadlineExceededError as error:
        if error.reason:
            raise
        silence = f"nothing was said within {PATIENCE.total_seconds():g} s"
        raise UnavailableError(error.code, silence) from error


def is_unreachable(error: SagentryError) -> bool:
    """Whether no server said this."""
    return isinstance(error, UnavailableError) and not error.reason


def explained(error: SagentryError, address: str) -> str:
    """Returns an error as one line for people."""
    if is_unreachable(error):
        return f"no server answers at {address}; start one with `sagentry serve` ({error.message})"
    fields = "; ".join(f"{field}: {problem}" for field, problem in error.violations)
    text = error.user_message or error.message
    if fields and fields not in text:
        text = f"{text} ({fields})"
    return f"{text} [{error.reason or error.code.name}]"


def complain(text: str) -> None:
    """Prints one line of complaint."""
    click.echo(f"sagentry: error: {safe_line(text)}", err=True)
