"""What a launched plugin is told by its environment."""

from __future__ import annotations

import os

ENDPOINT_VARIABLE = "SAGENTRY_PLUGIN_ENDPOINT"
"""Where a plugin that the host launches (`exec:`) must listen, for example `unix:/run/x/p.sock`."""


def endpoint_from_environment() -> str | None:
    """Returns the endpoint that the launcher asked for, or None."""
    return os.environ.get(ENDPOINT_VARIABLE) or None


def environment_with_endpoint(endpoint: str) -> dict[str, str]:
    """Returns this process's environment with the endpoint that a launched plugin must use."""
    return {**os.environ, ENDPOINT_VARIABLE: endpoint}
