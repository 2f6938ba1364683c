"""One configured plugin over its whole life: launched, attached, lost, attached again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.server.domain.plugins import (
    ContractBinding,
    PluginIdentity,
    PluginState,
    PluginView,
)
from sagentry.server.errors import PluginError
from sagentry.server.plugin.attachment import Attached, AttachError, Attachment
from sagentry.server.plugin.binding import ResponseT
from sagentry.server.plugin.budgets import budget_of
from sagentry.server.plugin.calls import Caller, Method
from sagentry.server.plugin.channel import Connection, connect
from sagentry.server.plugin.contracts import SERVICES
from sagentry.server.plugin.failures import Failures
from sagentry.server.plugin.outcome import Attempt, Said, failure_of
from sagentry.server.plugin.process import PluginProcess
from sagentry.server.plugin.target import CommandTarget, Target

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=10)
HEALTH_INTERVAL = timedelta(seconds=10)
MISSES_BEFORE_DEGRADED = 3

DRAINING = "SERVER_DRAINING"


class HostedPlugin:
    """One configured plugin.

    Args:
        name: Its name in the configuration.
        target: Where it is.
        wanted: Names of the contracts that it is used for.
        runtime_dir: Folder for its socket, if it is launched.
        host_version: Version of this server.
        on_change: Called after each change of the view.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        wanted: tuple[str, ...],
        *,
        runtime_dir: Path,
        host_version: str,
        on_change: Callable[[], None],
    ) -> None:
        """Begins unattached; `run` must run for anything to happen."""
        self.name = name
        self.wanted = wanted
        self.failures = Failures()
        self.attached = asyncio.Event()
        self.caller = Caller(name, self.failures)
        self._target = target
        self._attachment = Attachment(self.caller, wanted, host_version)
        self._on_change = on_change
        self._process: PluginProcess | None = None
        self._address: str | None = None
        if isinstance(target, CommandTarget):
            self._process = PluginProcess(
                name,
                target,
                runtime_dir=runtime_dir,
                on_change=self._process_changed,
            )
        else:
            self._address = target.address
        self._connection: Connection | None = None
        self._has: Attached | None = None
        self._state = PluginState.CONNECTING
        self._state_time = datetime.now(UTC)
        self._problem = "not attached yet"
        self._reason = "PLUGIN_UNAVAILABLE"
        self._next_attempt: datetime | None = None
        self._old_connections: list[Connection] = []
        self._poke = asyncio.Event()
        self._attaching = asyncio.Lock()

    # --- life

    async def run(self) -> None:
        """Keeps the plugin attached until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._process is not None:
                    tasks.create_task(self._process.run())
                tasks.create_task(self._keep_attached())
        finally:
            await self._let_go()

    async def attach_now(self) -> None:
        """Tries to attach at once, and returns when that has been tried; an attempt under way counts."""
        if self._attaching.locked():
            async with self._attaching:
                return
        await self._attach()

    async def _keep_attached(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._close_old()
            if await self._attach():
                pause = FIRST_PAUSE
                await self._watch()
                continue
            jitter = random.uniform(0.8, 1.2)  # noqa: S311 - spreads attempts, guards nothing
            wait = pause * jitter
            self._next_attempt = datetime.now(UTC) + wait
            pause = min(pause * 2, LONGEST_PAUSE)
            if await self._poked(wait):
                pause = FIRST_PAUSE

    async def _poked(self, wait: timedelta) -> bool:
        """Waits, at most so long, for something to have changed; says whether it has."""
        try:
            async with asyncio.timeout(wait / timedelta(seconds=1)):
                await self._poke.wait()
        except TimeoutError:
            return False
        self._poke.clear()
        return True

    async def _attach(self) -> bool:
        async with self._attaching:
            address = self._address
            if address is None:
                return False
            if self._connection is None:
                self._connection = connect(address)
            try:
                attached = await self._attachment.attach(self._connection)
            except AttachError as error:
                state = PluginState.REFUSED if error.is_refusal else PluginState.CONNECTING
                self._set(state, None, error.problem, error.reason)
                return False
            if address != self._address:
                return False
            self._next_attempt = None
            self._set(PluginState.ATTACHED, attached, "", "")
            return True

    async def _watch(self) -> None:
        """Returns when the plugin must be attached again: its connection or its process is gone."""
        misses = 0
        while self._has is not None:
            lost = await self._lost_within(HEALTH_INTERVAL)
            if lost or self._connection is None:
                self._set(
                    PluginState.CONNECTING, None, "the connection was lost", "PLUGIN_UNAVAILABLE"
                )
                return
            if await self._attachment.is_serving(self._connection):
                misses = 0
                if self._state is PluginState.DEGRADED:
                    return
                continue
            misses += 1
            if misses >= MISSES_BEFORE_DEGRADED and self._state is PluginState.ATTACHED:
                problem = "its health says that it is not serving"
                self._set(PluginState.DEGRADED, self._has, problem, "PLUGIN_UNAVAILABLE")

    async def _lost_within(self, wait: timedelta) -> bool:
        """Waits for the connection to end, at most so long; says whether it has."""
        if self._connection is None:
            return True
        channel = self._connection.channel
        try:
            async with asyncio.timeout(wait / timedelta(seconds=1)):
                state = channel.get_state()
                while state is grpc.ChannelConnectivity.READY:
                    await channel.wait_for_state_change(state)
                    state = channel.get_state()
        except TimeoutError:
            return False
        return True

    def _process_changed(self, address: str | None, why: str) -> None:
        self._address = address
        if self._connection is not None:
            # Closed by `_keep_attached`, which can wait; nobody calls it any more.
            self._old_connections.append(self._connection)
            self._connection = None
        if address is None:
            self._set(PluginState.CONNECTING, None, why, "PLUGIN_UNAVAILABLE")
        self._poke.set()

    async def _let_go(self) -> None:
        self._set(PluginState.CONNECTING, None, "the server is shutting down", DRAINING)
        if self._connection is not None:
            self._old_connections.append(self._connection)
            self._connection = None
        await self._close_old()

    async def _close_old(self) -> None:
        while self._old_connections:
            await self._old_connections.pop().channel.close()

    def _set(
        self, state: PluginState, attached: Attached | None, problem: str, reason: str
    ) -> None:
        changed = (state, problem) != (self._state, self._problem) or attached != self._has
        self._state, self._has, self._problem, self._reason = state, attached, problem, reason
        if attached is not None:
            self.attached.set()
        else:
            self.attached.clear()
        if changed:
            self._state_time = datetime.now(UTC)
            extra = {"plugin": self.name, "state": state.value, "problem": problem}
            is_expected = state is PluginState.ATTACHED or reason == DRAINING
            level = logging.INFO if is_expected else logging.WARNING
            logger.log(level, "plugin changed", extra=extra)
            self._on_change()

    # --- for calls

    def declared(self, service: str) -> plugin_pb2.Contract:
        """Returns what the plugin declared of a contract. Raises PluginError when not attached."""
        return self._attached("GetPluginInfo").contracts[service]

    @property
    def identity(self) -> PluginIdentity:
        """Who the plugin is. Raises PluginError when not attached."""
        return self._attached("GetPluginInfo").identity

    async def invoke(
        self,
        method: Method,
        request: Message,
        response_type: type[ResponseT],
        read: Callable[[ResponseT], T],
        timeout: timedelta | None,
    ) -> T:
        """Calls a method; see `Binding.invoke`."""
        attached = self._attached(method.name)
        if self._connection is None:
            raise self._unattached(method.name)
        return await self.caller.call(
            self._connection,
            method,
            request,
            response_type,
            read,
            caller_left=timeout,
            max_request_bytes=attached.identity.max_request_bytes,
        )

    def _attached(self, method: str) -> Attached:
        if self._has is None:
            raise self._unattached(method)
        return self._has

    def _unattached(self, method: str) -> PluginError:
        return PluginError(
            "PLUGIN_UNAVAILABLE",
            f"is not attached: {self._problem}",
            plugin=self.name,
            method=method,
            elapsed=timedelta(0),
            budget=budget_of(method),
        )

    # --- for operators

    def view(self) -> PluginView:
        """Shows the plugin as it is now."""
        unbound = tuple(ContractBinding(SERVICES[name], bound=False) for name in self.wanted)
        return PluginView(
            name=self.name,
            target=self._target.redacted(),
            state=self._state,
            state_change_time=self._state_time,
            identity=self._has.identity if self._has else None,
            contracts=self._has.bindings if self._has else unbound,
            problem=self._problem,
            problem_reason=self._reason,
            next_attempt_time=self._next_attempt if self._has is None else None,
            process_starts=self._process.starts if self._process else 0,
        )


class HostedBinding:
    """One contract of one plugin, whether it is attached or not; see `Binding`."""

    def __init__(self, plugin: HostedPlugin, contract: str) -> None:
        """Names the contract as the configuration does."""
        self.plugin = plugin.name
        self._plugin = plugin
        self._service = SERVICES[contract]

    @property
    def declared(self) -> plugin_pb2.Contract:
        """What the attached plugin declared of the contract."""
        return self._plugin.declared(self._service)

    @property
    def identity(self) -> PluginIdentity:
        """Who the attached plugin is, with its limits."""
        return self._plugin.identity

    async def invoke(
        self,
        method: str,
        request: Message,
        response_type: type[ResponseT],
        read: Callable[[ResponseT], T],
        *,
        timeout: timedelta | None = None,
    ) -> T:
        """Calls a method once in the caller's eyes, and reads the answer."""
        return await self._plugin.invoke(
            Method(self._service, method), request, response_type, read, timeout
        )

    def failure(
        self, method: str, *, code: int, reason: str, message: str, facts: dict[str, str]
    ) -> PluginError:
        """Returns what a failure inside an answer means."""
        attempt = Attempt(self.plugin, method, timedelta(0), budget_of(method))
        return failure_of(attempt, Said(code, reason, message, facts))
