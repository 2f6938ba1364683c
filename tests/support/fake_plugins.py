"""A plugin directory that tests fill by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sagentry.server.domain.plugins import (
    ContractBinding,
    PluginFailure,
    PluginIdentity,
    PluginState,
    PluginView,
)
from sagentry.server.errors import NotFoundError

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

IDENTITY = PluginIdentity(
    name="com.example.store",
    version="1.2.3",
    instance_id="i-1",
    max_request_bytes=4_000_000,
    max_response_bytes=4_000_000,
    max_concurrent_calls=0,
)


def plugin_view(name: str, *, is_attached: bool = True) -> PluginView:
    view = PluginView(
        name=name,
        target=f"unix:/{name}",
        state=PluginState.ATTACHED,
        state_change_time=TIME,
        identity=IDENTITY,
        contracts=(
            ContractBinding(
                "sagentry.api.plugin.v1.AgentPersistenceService",
                bound=is_attached,
                capabilities=("FENCING",),
            ),
        ),
    )
    if is_attached:
        return view
    return replace(
        view,
        state=PluginState.CONNECTING,
        identity=None,
        problem="connection refused",
        problem_reason="PLUGIN_UNAVAILABLE",
        next_attempt_time=TIME + timedelta(seconds=1),
    )


def plugin_failure(plugin: str, number: int, *, time: datetime | None = None) -> PluginFailure:
    return PluginFailure(
        plugin=plugin,
        method="LoadState",
        time=time or TIME + timedelta(seconds=number),
        reason="PLUGIN_TIMEOUT",
        code=4,
        message=f"failure {number}",
        elapsed=timedelta(seconds=5),
        budget=timedelta(seconds=5),
        consequence="start refused",
        request_id=f"r-{number}",
        command="grpcurl …",
    )


class FakePlugins:
    """Stands for the plugin host; `show` and `fail` change what it says."""

    def __init__(self) -> None:
        self.views: dict[str, PluginView] = {}
        self.failures: list[PluginFailure] = []
        self.listeners: list[Callable[[], None]] = []
        self.steps: list[str] = []
        self.test_result: Callable[[str], PluginView] = self.get_plugin

    async def start(self) -> None:
        self.steps.append("plugins started")

    async def stop(self) -> None:
        self.steps.append("plugins stopped")

    def binding(self, contract: str) -> None:
        """Has no plugin for any contract."""

    def show(self, view: PluginView) -> None:
        self.views[view.name] = view
        for listener in self.listeners:
            listener()

    def fail(self, failure: PluginFailure) -> None:
        self.failures.insert(0, failure)

    def list_plugins(self) -> Sequence[PluginView]:
        return [self.views[name] for name in sorted(self.views)]

    def get_plugin(self, name: str) -> PluginView:
        if name not in self.views:
            known = ",".join(sorted(self.views))
            raise NotFoundError(
                "PLUGIN_NOT_FOUND", f"there is no plugin {name}", plugin=name, known=known
            )
        return self.views[name]

    def list_failures(self, plugin: str | None = None) -> Sequence[PluginFailure]:
        if plugin is not None:
            self.get_plugin(plugin)
        return [failure for failure in self.failures if plugin in {None, failure.plugin}]

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def test_plugin(self, name: str) -> PluginView:
        self.get_plugin(name)
        return self.test_result(name)
