"""The other half of the composition root: what agents are made of."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sagentry.server.agent.absent import NoDisplayStore, NoPreprocessor, NoStateStore
from sagentry.server.agent.core import Profile
from sagentry.server.agent.recovery import AgentServices
from sagentry.server.agent.registry import AgentRegistry
from sagentry.server.agent.streams import Streams
from sagentry.server.data_folder import owner_id
from sagentry.server.errors import InvalidInputError, SagentryError, StartError
from sagentry.server.events.log import EventLog
from sagentry.server.journal.sqlite_journal import SqliteJournal
from sagentry.server.model.factory import DEMO, build_model, first_model
from sagentry.server.model.resilient import ResilientModel
from sagentry.server.model_ports import ChatModel, ModelOptions
from sagentry.server.plugin.binding import Binding
from sagentry.server.plugin.v1.agent_persistence import AgentPersistence
from sagentry.server.plugin.v1.display_message_persistence import DisplayMessagePersistence
from sagentry.server.plugin.v1.message_preprocessor import MessagePreprocessor
from sagentry.server.ports import AgentDirectory, Clock
from sagentry.server.rpc.event_encoder import ProtoEventEncoder
from sagentry.server.settings import Contract, PluginSettings, ProfileSettings, Settings
from sagentry.server.tools.registry import ToolRegistry
from sagentry.server.tools.runner import ToolRunner

JOURNAL_FILE = "journal.db"
STORE_FILE = "store.db"


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """Returns the wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Returns seconds that never go back."""
        return asyncio.get_running_loop().time()

    async def sleep(self, duration: timedelta) -> None:
        """Returns when the duration is over."""
        await asyncio.sleep(duration.total_seconds())

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the event loop after the delay; returns what takes that back."""
        handle = asyncio.get_running_loop().call_later(delay.total_seconds(), callback)
        return handle.cancel


class Bindings(Protocol):
    """Finds the plugin of a contract."""

    def binding(self, contract: str) -> Binding | None:
        """Returns the contract's plugin; None when the configuration has none."""


def with_default_store(settings: Settings) -> Settings:
    """Gives a server whose configuration names no plugins the SQL store, launched by it."""
    if settings.plugins:
        return settings
    database = settings.data_dir / STORE_FILE
    command = [sys.executable, "-m", "sagentry.plugins.sql", "--database", str(database)]
    store = PluginSettings(
        target="exec:" + shlex.join(command),
        contracts=(Contract.AGENT_PERSISTENCE, Contract.DISPLAY_MESSAGE_PERSISTENCE),
    )
    return settings.model_copy(update={"plugins": {"store": store}})


def with_first_model(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Gives a server that nobody has configured the model of a provider whose key is there."""
    model = first_model(environ)
    if model == DEMO:
        return settings
    profiles = {
        name: profile.model_copy(update={"model": model})
        for name, profile in settings.profiles.items()
    }
    return settings.model_copy(update={"profiles": profiles})


@asynccontextmanager
async def running_agents(
    settings: Settings,
    folder: Path,
    plugins: Bindings,
    *,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[AgentDirectory, Callable[[timedelta], Awaitable[None]]]]:
    """Runs the agents while the context is open.

    Args:
        settings: The settings.
        folder: The data folder.
        plugins: Finds plugins.
        environ: Has the keys of model providers.

    Raises:
        StartError: A profile names a model or a tool that cannot be had, or the journal cannot be opened.
    """
    profiles = _profiles(settings, environ or {}, SystemClock())
    try:
        journal = SqliteJournal(
            folder / JOURNAL_FILE,
            fsync=settings.journal.fsync,
            max_bytes=settings.journal.max_bytes,
        )
    except SagentryError as error:
        raise StartError(error.message) from error
    registry = _registry(settings, folder, plugins, profiles, journal)
    ready = asyncio.Event()
    # Owned by this context, which awaits it; a task group around `yield` would hide the body's errors.
    serving = asyncio.get_running_loop().create_task(registry.serve(ready), name="agents")
    try:
        await ready.wait()
        yield registry, registry.close
    finally:
        await registry.close(timedelta(0))
        await serving
        await journal.close()


def _registry(
    settings: Settings,
    folder: Path,
    plugins: Bindings,
    profiles: dict[str, Profile],
    journal: SqliteJournal,
) -> AgentRegistry:
    states = plugins.binding(Contract.AGENT_PERSISTENCE.value)
    rows = plugins.binding(Contract.DISPLAY_MESSAGE_PERSISTENCE.value)
    preprocessor = plugins.binding(Contract.MESSAGE_PREPROCESSOR.value)
    clock = SystemClock()
    encoder = ProtoEventEncoder()

    def make_log(agent_id: str, conversation_id: str) -> EventLog:
        return EventLog(
            agent_id,
            conversation_id,
            encoder=encoder,
            clock=clock,
            max_bytes=settings.limits.event_log_bytes,
        )

    def profile(name: str) -> Profile:
        found = profiles.get(name)
        if found is None:
            raise InvalidInputError(
                "options.profile",
                f"there is no profile {name}",
                reason="PROFILE_UNKNOWN",
                profile=name,
                known=",".join(sorted(profiles)),
            )
        return found

    services = AgentServices(
        owner_id=owner_id(folder),
        journal=journal,
        state_store=AgentPersistence(states) if states else NoStateStore(),
        display_store=DisplayMessagePersistence(rows) if rows else NoDisplayStore(),
        executor=ToolRunner(),
        clock=clock,
        profile=profile,
        streams=Streams(make_log),
        settle_timeout=settings.settle_timeout,
    )
    return AgentRegistry(
        services,
        MessagePreprocessor(preprocessor) if preprocessor else NoPreprocessor(),
        most_agents=settings.limits.live_agents,
    )


def _profiles(settings: Settings, environ: Mapping[str, str], clock: Clock) -> dict[str, Profile]:
    try:
        tools = ToolRegistry.installed()
        models = {
            name: _model(name, profile, environ) for name, profile in settings.profiles.items()
        }
        return {
            name: _profile(name, profile, tools, models, clock)
            for name, profile in settings.profiles.items()
        }
    except ValueError as error:
        raise StartError(str(error)) from error


def _model(name: str, settings: ProfileSettings, environ: Mapping[str, str]) -> ChatModel:
    options = ModelOptions(
        base_url=settings.base_url,
        api_key_env=settings.api_key_env,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        thinking_tokens=settings.thinking_tokens,
        reasoning_effort=settings.reasoning_effort,
    )
    try:
        return build_model(settings.model, base_dir=Path.cwd(), options=options, environ=environ)
    except ValueError as error:
        problem = f"profiles.{name}: {error}"
        raise ValueError(problem) from error


def _profile(
    name: str,
    settings: ProfileSettings,
    tools: ToolRegistry,
    models: Mapping[str, ChatModel],
    clock: Clock,
) -> Profile:
    for number, other in enumerate(settings.fallbacks):
        if other == name or other not in models:
            problem = "a profile cannot stand in for itself" if other == name else "no such profile"
            message = f"profiles.{name}.fallbacks[{number}]: {other}: {problem}"
            raise ValueError(message)
    chain = [models[name], *(models[other] for other in settings.fallbacks)]
    try:
        return Profile(
            name=name,
            model=ResilientModel(chain, retries=settings.model_retries, clock=clock),
            system_prompt=settings.system_prompt,
            tools=dict(tools.select(settings.tools)),
            max_turns=settings.max_turns,
            inactivity_timeout=settings.inactivity_timeout,
            unwatched_timeout=settings.unwatched_timeout,
        )
    except ValueError as error:
        problem = f"profiles.{name}: {error}"
        raise ValueError(problem) from error
