"""The `sagentry` command: finds its commands by entry points and says which extra one lacks.

This module imports nothing that an extra brings, so that it can always say what to install.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

EXIT_EXTRA_MISSING = 2

EXTRAS = {
    "alembic": "server",
    "click": "cli",
    "langchain_core": "server",
    "pydantic": "server",
    "prompt_toolkit": "cli",
    "rich": "cli",
    "sqlalchemy": "server",
    "yaml": "server",
}
"""Module → the extra that brings it first. The base's own modules are not here: without them the
installation is broken, and a traceback says so."""


def main() -> None:
    """Runs the command line; the entry point of the `sagentry` script."""
    # Without it the gRPC library writes notes of its own among what the commands say.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # noqa: TID251 - for the library, before its import
    try:
        # Its modules need the extra [cli], and those of a command maybe more.
        from sagentry.cli.commands import sagentry  # noqa: PLC0415

        sagentry(prog_name="sagentry")
    except ModuleNotFoundError as error:
        extra = missing_extra(error)
        if extra is None:
            raise
        print(
            f"sagentry: this command needs the extra '{extra}': pip install 'sagentry[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(EXIT_EXTRA_MISSING)


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Returns the extra whose absence the error shows, or None if it is a fault of the code.

    Args:
        error: What an import raised. A missing *part* of an installed module is a fault.
    """
    name, _, _ = (error.name or "").partition(".")
    if name not in EXTRAS or find_spec(name) is not None:
        return None
    return EXTRAS[name]


if __name__ == "__main__":
    main()
