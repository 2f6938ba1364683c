"""The composition root: the one place that names concrete classes and knows their order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Protocol

import grpc.aio

from sagentry.server.addresses import ListenAddress
from sagentry.server.data_folder import locked_data_folder
from sagentry.server.lifecycle import Drain, drain_on_signals
from sagentry.server.plugin.binding import Binding
from sagentry.server.plugin.host import PluginHost
from sagentry.server.ports import AgentDirectory, Authenticator, PluginDirectory
from sagentry.server.rpc.admin_servicer import AdminServicer
from sagentry.server.rpc.agent_servicer import AgentServicer
from sagentry.server.rpc.caller import AnonymousAuthenticator
from sagentry.server.rpc.event_servicer import EventServicer
from sagentry.server.rpc.health import Health
from sagentry.server.rpc.interceptors.admission import AdmissionInterceptor
from sagentry.server.rpc.listening import listen
from sagentry.server.rpc.server import (
    NoAgentServicer,
    NoEventServicer,
    Servicers,
    add_services,
    new_server,
)
from sagentry.server.settings import Settings

RUNTIME_FOLDER = "run"
"""Folder in the data folder for sockets of plugins that the server launches."""

STREAM_GRACE = timedelta(seconds=2)
"""How long the end of a stream may take to reach its reader when nothing else is left to do."""

AGENTS_SHARE = 0.8
"""Share of a drain's time in which agents may finish their runs; the rest is for saving and ending."""

logger = logging.getLogger(__name__)


class PluginRunner(PluginDirectory, Protocol):
    """Plugins that are attached while the server runs."""

    async def start(self) -> None:
        """Begins to attach them and returns; late plugins are waited for in the background."""

    async def stop(self) -> None:
        """Lets go of them and ends those that the server launched."""

    def binding(self, contract: str) -> Binding | None:
        """Returns the plugin of a contract, attached or not; None when none is configured."""


MakePlugins = Callable[[Settings, Path], PluginRunner]
"""Makes the plugin host, given the folder for its sockets."""

FinishAgents = Callable[[timedelta], Awaitable[None]]
"""Lets agents finish what they do and save, within the time given; cancelled when it is over."""

MakeAgents = Callable[
    [Settings, Path, PluginRunner],
    AbstractAsyncContextManager[tuple[AgentDirectory, FinishAgents]],
]
"""Makes the agents, given the data folder and the plugins; gives back what they hold when left."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that takes calls.

    Attributes:
        addresses: Where it listens, with real ports.
        drain: Its end: `drain.begin()` begins it.
        plugins: Its plugins.
    """

    addresses: tuple[ListenAddress, ...]
    drain: Drain
    plugins: PluginDirectory


async def _no_agents(_budget: timedelta) -> None:
    """Finishes the agents of a server that has none."""


@asynccontextmanager
async def running_server(
    settings: Settings,
    *,
    drain: Drain | None = None,
    make_plugins: MakePlugins | None = None,
    authenticator: Authenticator | None = None,
    make_agents: MakeAgents | None = None,
) -> AsyncIterator[RunningServer]:
    """Runs a server in this process while the context is open; leaving it drains the server.

    The body should leave when `drain.wait_begun` returns. Everything is taken in order and given
    back in the opposite one, also when the start fails half-way: health says NOT_SERVING, new work
    is refused, agents finish, streams end, the server stops, plugins are let go, the data folder is
    free. All of it together takes at most the budget of the drain, and what cancelled handlers and
    plugins need to end.

    Args:
        settings: The settings; where to listen is in them.
        drain: The end of the server, if something knows it already.
        make_plugins: Makes the plugin host; the real one unless told otherwise.
        authenticator: Finds out who calls; everybody may do everything unless told otherwise.
        make_agents: Makes the agents; without them their services answer "not yet".

    Raises:
        StartError: The data folder or an address cannot be had.
    """
    drain = drain or Drain(settings.drain_timeout)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(locked_data_folder(settings.data_dir))
        plugins = _made_plugins(settings, make_plugins or _plugin_host, folder)
        stack.push_async_callback(plugins.stop)
        agents: AgentDirectory | None = None
        finish_agents: FinishAgents = _no_agents
        if make_agents is not None:
            agents, finish_agents = await stack.enter_async_context(
                make_agents(settings, folder, plugins)
            )
        health = Health(plugins)
        stack.callback(plugins.subscribe(health.refresh))
        admission = AdmissionInterceptor()
        server = new_server(authenticator or AnonymousAuthenticator(), admission)
        add_services(server, _servicers(settings, plugins, drain, agents), health)
        sockets = stack.enter_context(ExitStack())
        stack.push_async_callback(_stop, server, admission, drain)
        stack.callback(admission.end_streams)
        stack.push_async_callback(_finish, finish_agents, drain)
        stack.callback(admission.refuse_work)
        stack.callback(health.drain)
        stack.callback(_begin, drain)
        addresses = await listen(server, settings.listen, sockets)
        # Not before: a server that cannot have its address launches nothing.
        await plugins.start()
        await server.start()
        health.start_serving()
        yield RunningServer(addresses, drain, plugins)


async def run(
    settings: Settings,
    announce: Callable[[RunningServer], None],
    *,
    make_plugins: MakePlugins | None = None,
    make_agents: MakeAgents | None = None,
) -> None:
    """Runs a server until SIGTERM, SIGINT or DrainServer; returns when it has drained.

    Args:
        settings: The settings.
        announce: Called once, when the server takes calls.
        make_plugins: Makes the plugin host; the real one unless told otherwise.
        make_agents: Makes the agents; without them their services answer "not yet".

    Raises:
        StartError: The data folder or an address cannot be had.
    """
    drain = Drain(settings.drain_timeout)
    with drain_on_signals(drain):
        async with running_server(
            settings, drain=drain, make_plugins=make_plugins, make_agents=make_agents
        ) as server:
            announce(server)
            await drain.wait_begun()
            logger.info("drain begins", extra={"budget_s": round(drain.remaining_seconds(), 3)})
    logger.info("server ended")


def host_version() -> str:
    """Returns the version of the server; `0` when it runs from a folder that is not installed."""
    try:
        return metadata.version("sagentry")
    except metadata.PackageNotFoundError:
        return "0"


def _plugin_host(settings: Settings, runtime_dir: Path) -> PluginRunner:
    return PluginHost(settings.plugins, runtime_dir=runtime_dir, host_version=host_version())


def _made_plugins(settings: Settings, make: MakePlugins, folder: Path) -> PluginRunner:
    runtime_dir = folder / RUNTIME_FOLDER
    runtime_dir.mkdir(mode=0o700, exist_ok=True)
    return make(settings, runtime_dir)


def _servicers(
    settings: Settings, plugins: PluginDirectory, drain: Drain, agents: AgentDirectory | None
) -> Servicers:
    # answers_not_yet completes these classes, which a type checker cannot know.
    admin = AdminServicer(plugins, drain.begin)  # type: ignore[abstract]
    if agents is None:
        return Servicers(NoAgentServicer(), NoEventServicer(), admin)  # type: ignore[abstract]
    return Servicers(
        AgentServicer(agents),  # type: ignore[abstract]
        EventServicer(agents, streams_per_caller=settings.limits.streams_per_caller),
        admin,
    )


def _begin(drain: Drain) -> None:
    if not drain.has_begun:
        drain.begin()


async def _finish(finish_agents: FinishAgents, drain: Drain) -> None:
    try:
        budget = timedelta(seconds=drain.remaining_seconds()) * AGENTS_SHARE
        is_done = await drain.finish(finish_agents(budget))
    except Exception:
        # What is left to do has to be done all the same.
        logger.exception("agents could not finish")
    else:
        if not is_done:
            logger.warning("agents did not finish in time")


async def _stop(server: grpc.aio.Server, admission: AdmissionInterceptor, drain: Drain) -> None:
    # Does nothing to a server that runs. One whose start failed keeps the ports that it has got
    # for as long as the process lives, unless it is started and stopped.
    await server.start()

    async def stop() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.stop(drain.remaining_seconds()))
            await admission.wait_answered()
            # Only streams are left, and those have been ended: their readers do not read.
            await server.stop(STREAM_GRACE.total_seconds())

    if not await drain.finish(stop()):
        await server.stop(None)
