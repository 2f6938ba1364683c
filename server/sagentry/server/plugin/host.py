"""The plugin host: attaches the configured plugins, keeps them attached, shows what it has of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sagentry.server.domain.plugins import PluginFailure, PluginView
from sagentry.server.errors import NotFoundError
from sagentry.server.plugin.binding import Binding
from sagentry.server.plugin.hosted import HostedBinding, HostedPlugin
from sagentry.server.plugin.target import parse_target

logger = logging.getLogger(__name__)


class PluginConfiguration(Protocol):
    """What the host needs to know of a plugin."""

    @property
    def target(self) -> str:
        """Where it is."""

    @property
    def contracts(self) -> Sequence[str]:
        """Names of the contracts that it is used for."""


class PluginHost:
    """Implements the plugin directory.

    Args:
        settings: The plugins by name.
        runtime_dir: Folder for the sockets of launched plugins.
        host_version: Version of this server.

    Raises:
        InvalidInputError: A target is malformed; names the plugin's setting.
    """

    def __init__(
        self,
        settings: Mapping[str, PluginConfiguration],
        *,
        runtime_dir: Path,
        host_version: str,
    ) -> None:
        """Reads the targets; nothing is attached yet."""
        self._listeners: list[Callable[[], None]] = []
        self._plugins = {
            name: HostedPlugin(
                name,
                parse_target(plugin.target, f"plugins.{name}.target"),
                tuple(plugin.contracts),
                runtime_dir=runtime_dir,
                host_version=host_version,
                on_change=self._changed,
            )
            for name, plugin in sorted(settings.items())
        }
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to attach all plugins and returns; a missing one is waited for in the background."""
        # Owned by this object: `stop` awaits it.
        self._running = asyncio.get_running_loop().create_task(self._run(), name="plugin-host")

    async def stop(self) -> None:
        """Lets go of the plugins and ends those that were launched. Safe to repeat."""
        self._stopping.set()
        if self._running is not None:
            await self._running
            self._running = None

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(plugin.run()) for plugin in self._plugins.values()]
            await self._stopping.wait()
            for task in running:
                task.cancel()

    # --- the directory

    def list_plugins(self) -> Sequence[PluginView]:
        """Returns all configured plugins by name."""
        return [plugin.view() for plugin in self._plugins.values()]

    def get_plugin(self, name: str) -> PluginView:
        """Returns one plugin."""
        return self._plugin(name).view()

    def list_failures(self, plugin: str | None = None) -> Sequence[PluginFailure]:
        """Returns the newest failures, newest first."""
        plugins = self._plugins.values() if plugin is None else [self._plugin(plugin)]
        failures = [failure for one in plugins for failure in one.failures.newest_first()]
        return sorted(failures, key=lambda failure: failure.time, reverse=True)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls the listener after each change of a plugin's view."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def test_plugin(self, name: str) -> PluginView:
        """Tries to attach the plugin now and returns what came of it."""
        plugin = self._plugin(name)
        await plugin.attach_now()
        return plugin.view()

    async def wait_attached(self, name: str) -> None:
        """Returns when the plugin is attached."""
        await self._plugin(name).attached.wait()

    # --- for facades

    def binding(self, contract: str) -> Binding | None:
        """Returns the first plugin, by name, that the configuration uses for a contract; None for none."""
        for plugin in self._plugins.values():
            if contract in plugin.wanted:
                return HostedBinding(plugin, contract)
        return None

    def _plugin(self, name: str) -> HostedPlugin:
        plugin = self._plugins.get(name)
        if plugin is None:
            raise NotFoundError(
                "PLUGIN_NOT_FOUND",
                f"the configuration has no plugin {name}",
                plugin=name,
                known=",".join(self._plugins),
            )
        return plugin

    def _changed(self) -> None:
        for listener in list(self._listeners):
            listener()
