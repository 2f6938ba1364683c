"""The group of commands. Each comes by an entry point and is imported when it is called."""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

import click

from sagentry.cli.output import show_what_cannot_be_written

GROUP = "sagentry.commands"
"""Entry point group: name of the command → its click command."""

SUMMARIES = {
    "agents": "List the live agents.",
    "chat": "Talk with an agent.",
    "doctor": "Check the configuration and show all limits.",
    "plugin": "Show and judge plugins.",
    "serve": "Run the agent server.",
    "send": "Send a message and print the answer.",
    "transcript": "Print a conversation.",
    "watch": "Follow an agent.",
}
"""What `--help` says of a command without importing it."""


class EntryPointGroup(click.Group):
    """A group whose commands are entry points, imported one by one when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names, without importing a command."""
        return sorted({*super().list_commands(ctx), *_found()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command, imported now.

        Raises:
            ModuleNotFoundError: if it needs an extra that is not installed.
        """
        own = super().get_command(ctx, cmd_name)
        entry = _found().get(cmd_name)
        if own is not None or entry is None:
            return own
        command: click.Command = entry.load()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them."""
        rows = [(name, SUMMARIES.get(name, "")) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def installed_version() -> str:
    """Returns the version of the installed package; `unknown` in a bare source tree."""
    try:
        return version("sagentry")
    except PackageNotFoundError:
        return "unknown"


def _found() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@click.group(cls=EntryPointGroup)
@click.version_option(installed_version(), message="sagentry %(version)s")
def sagentry() -> None:
    """Long-lived LLM chat agents as a gRPC service."""
    show_what_cannot_be_written()
