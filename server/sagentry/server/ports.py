"""What the server's parts need of each other and of the world, as protocols in domain terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sagentry.server.domain.plugins import PluginFailure, PluginView


class PluginDirectory(Protocol):
    """Shows the configured plugins. All methods answer at once from memory."""

    def list_plugins(self) -> Sequence[PluginView]:
        """Returns all configured plugins by name."""

    def get_plugin(self, name: str) -> PluginView:
        """Returns one plugin.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND; names the known ones.
        """

    def list_failures(self, plugin: str | None = None) -> Sequence[PluginFailure]:
        """Returns the newest failures, newest first; of one plugin if named.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND.
        """

    async def test_plugin(self, name: str) -> PluginView:
        """Tries to attach the plugin now and returns what came of it.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND.
        """


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as an Authenticator found out.

    Attributes:
        name: For logs and audits, for example `anonymous` or a token's name.
        is_service: May set the scope of its requests.
        is_admin: May call the admin service.
    """

    name: str
    is_service: bool
    is_admin: bool


class Authenticator(Protocol):
    """Finds out who calls."""

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], peer: str) -> Caller:
        """Returns the caller.

        Args:
            metadata: The call's metadata, keys in lower case.
            peer: The transport's name of the peer, for example `unix:` or `ipv4:127.0.0.1:4711`.

        Raises:
            UnauthenticatedError: The credentials are missing or not accepted.
        """
