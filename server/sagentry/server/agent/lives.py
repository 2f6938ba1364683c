"""The agents that are live on this server: each is started once, found, and stopped once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sagentry.server.agent.acceptance import Acceptance
from sagentry.server.agent.agent import Agent
from sagentry.server.agent.naps import NapRules, NapTimer
from sagentry.server.agent.recovery import AgentServices, Recovery
from sagentry.server.agent.store_link import RETRYABLE
from sagentry.server.agent.work import AgentStoppingError
from sagentry.server.domain.commands import AgentOptions
from sagentry.server.domain.events import StreamEndReason
from sagentry.server.domain.runs import StopReason
from sagentry.server.domain.scope import AgentKey, ConversationKey, Scope
from sagentry.server.errors import (
    InvalidInputError,
    InvalidStateError,
    LimitExceededError,
    PluginError,
    SagentryError,
    UnavailableError,
)
from sagentry.server.ports import Preprocessor

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECOVERIES_AT_ONCE = 8
RECOVERY_PAUSE = timedelta(seconds=1)


@dataclass(slots=True)
class LiveAgent:
    """A live agent, its door, and how it ends."""

    agent: Agent
    acceptance: Acceptance
    gone: asyncio.Event
    stopping: asyncio.Task[int] | None = None
    nap: NapTimer | None = None


@dataclass(slots=True)
class _Starting:
    outcome: asyncio.Future[LiveAgent]
    task: asyncio.Task[None] | None = None


class LiveAgents:
    """Starts, keeps and stops agents.

    Args:
        services: What every agent uses.
        preprocessor: Looks at messages first.
        most_agents: Most live agents.
    """

    def __init__(
        self, services: AgentServices, preprocessor: Preprocessor, *, most_agents: int
    ) -> None:
        """Begins with no agents; `serve` must run for any to start."""
        self._services = services
        self._preprocessor = preprocessor
        self._most_agents = most_agents
        self._live: dict[AgentKey, LiveAgent] = {}
        self._starting: dict[AgentKey, _Starting] = {}
        self._conversations: dict[ConversationKey, AgentKey] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()

    def get(self, key: AgentKey) -> LiveAgent | None:
        """Returns the agent if it is live."""
        return self._live.get(key)

    async def present(self, key: AgentKey) -> LiveAgent | None:
        """Returns the agent if it is live, or will be once the start under way is done."""
        starting = self._starting.get(key)
        if starting is not None:
            await asyncio.wait({starting.outcome})
        return self._live.get(key)

    def all(self) -> list[tuple[AgentKey, LiveAgent]]:
        """Returns all live agents."""
        return list(self._live.items())

    async def serve(self, ready: asyncio.Event) -> None:
        """Runs the agents until `close`; wakes those that the journal has entries of."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            recovering = tasks.create_task(self._recover_all())
            ready.set()
            await self._closing.wait()
            recovering.cancel()
        self._tasks = None

    async def close(self, budget: timedelta) -> None:
        """Stops all agents within the budget, states saved or journalled. Idempotent.

        Nothing starts any more from here on. What is just starting is dropped: all of it is in the
        journal, as after a crash.
        """
        self._closing.set()
        for starting in list(self._starting.values()):
            if starting.task is not None:
                starting.task.cancel()
        async with asyncio.TaskGroup() as stopping:
            for live in list(self._live.values()):
                stopping.create_task(self.stop(live, StopReason.DRAINING, budget, finish_run=True))
        self._services.streams.end_all(StreamEndReason.DRAINING, reconnect=True)

    async def _recover_all(self) -> None:
        """Wakes each agent that has journal entries, and goes on trying until it is awake."""
        slots = asyncio.Semaphore(RECOVERIES_AT_ONCE)

        async def recover(conversation: ConversationKey, agent_id: str) -> None:
            key = AgentKey(conversation.scope, agent_id)
            options = AgentOptions(conversation_id=conversation.conversation_id)
            while True:
                try:
                    async with slots:
                        await self.find(key, Scope(conversation.scope), options)
                except Exception as error:
                    if not _passes(error):
                        logger.exception(
                            "an agent cannot be recovered", extra={"agent_id": agent_id}
                        )
                        return
                    await self._services.clock.sleep(RECOVERY_PAUSE)
                else:
                    return

        async with asyncio.TaskGroup() as tasks:
            for conversation, agent_id in await self._services.journal.conversations():
                tasks.create_task(recover(conversation, agent_id))

    async def find(self, key: AgentKey, scope: Scope, options: AgentOptions | None) -> LiveAgent:
        """Returns the live agent; starts it if it is not."""
        has_made_room = False
        while True:
            live = self._live.get(key)
            if live is not None:
                if not live.agent.is_stopping:
                    return live
                await live.gone.wait()
                continue
            starting = self._starting.get(key)
            is_own = starting is None
            if starting is None:
                if self._is_full and not has_made_room:
                    has_made_room = True
                    await self._make_room()
                    continue
                starting = self._begin_start(key, scope, options)
            await asyncio.wait({starting.outcome})
            if not is_own and isinstance(starting.outcome.exception(), InvalidInputError):
                # What the other caller asked for was wrong, not what this one does.
                continue
            return starting.outcome.result()

    @property
    def _is_full(self) -> bool:
        return len(self._live) + len(self._starting) >= self._most_agents

    def _begin_start(self, key: AgentKey, scope: Scope, options: AgentOptions | None) -> _Starting:
        if self._tasks is None or self._closing.is_set():
            raise _draining()
        conversation = ConversationKey(
            key.scope, (options.conversation_id if options else "") or key.agent_id
        )
        owner = self._conversations.get(conversation)
        if owner is not None and owner != key:
            raise InvalidStateError(
                "CONVERSATION_IN_USE",
                "another live agent has that conversation",
                conversation_id=conversation.conversation_id,
                agent_id=owner.agent_id,
            )
        if self._is_full:
            raise LimitExceededError(
                "LIMIT_EXCEEDED",
                "too many live agents",
                limit=self._most_agents,
                actual=len(self._live) + len(self._starting),
                limit_name="live_agents",
            )
        started: asyncio.Future[LiveAgent] = asyncio.get_running_loop().create_future()
        starting = self._starting[key] = _Starting(started)
        self._conversations[conversation] = key
        hosting = self._host(key, scope, options, conversation, started)
        try:
            starting.task = self._tasks.create_task(hosting)
        except RuntimeError as error:
            # The server is ending by a fault, and its task group takes no more.
            hosting.close()
            self._forget(key, conversation, started)
            raise _draining() from error
        # Also when it is cancelled before its first step.
        starting.task.add_done_callback(lambda _: self._forget(key, conversation, started))
        return starting

    async def _host(
        self,
        key: AgentKey,
        scope: Scope,
        options: AgentOptions | None,
        conversation: ConversationKey,
        started: asyncio.Future[LiveAgent],
    ) -> None:
        """Starts one agent and runs it to its end."""
        gone = asyncio.Event()
        try:
            recovery = Recovery(self._services, key, scope, options)
            agent = await recovery.build()
            async with asyncio.TaskGroup() as tasks:
                ready = asyncio.Event()
                tasks.create_task(agent.serve(ready))
                await ready.wait()
                await recovery.announce(agent)
                acceptance = Acceptance(
                    agent, self._preprocessor, settle_timeout=self._services.settle_timeout
                )
                live = LiveAgent(agent, acceptance, gone)
                self._live[key] = live
                self._starting.pop(key, None)
                started.set_result(live)
                live.nap = self._nap_timer(key, live)
        except Exception as error:  # noqa: BLE001 - handed to who waits, and logged
            _log_end(key, error, was_started=started.done())
            if not started.done():
                started.set_exception(_cause(error))
                started.exception()
        finally:
            live_before = self._live.pop(key, None)
            if live_before is not None and live_before.nap is not None:
                live_before.nap.cancel()
            self._forget(key, conversation, started)
            self._services.streams.detach(key)
            if live_before is not None and live_before.agent.is_fenced:
                self._services.streams.end(key, StreamEndReason.FENCED, reconnect=True)
            gone.set()

    def _nap_timer(self, key: AgentKey, live: LiveAgent) -> NapTimer:
        profile = live.agent.core.profile
        return NapTimer(
            live.agent,
            NapRules(profile.inactivity_timeout, profile.unwatched_timeout),
            self._services.clock,
            is_watched=lambda: bool(self._services.streams.viewers(key)),
            sleep=lambda reason: self._begin_stop(live, reason),
        )

    async def _make_room(self) -> None:
        """Puts the agent to sleep that has rested longest and that nobody follows, if there is one."""
        for key, live in sorted(self._live.items(), key=lambda item: item[1].agent.active_at):
            if not self._services.streams.readers(key) and live.agent.try_to_rest():
                self._begin_stop(live, StopReason.INACTIVITY)
                await live.gone.wait()
                return

    def _forget(
        self, key: AgentKey, conversation: ConversationKey, started: asyncio.Future[LiveAgent]
    ) -> None:
        """Makes room for the next start; safe to repeat, also when that has begun."""
        starting = self._starting.get(key)
        if starting is not None and starting.outcome is started:
            del self._starting[key]
        is_ours = starting is None or starting.outcome is started
        if is_ours and key not in self._live:
            self._conversations.pop(conversation, None)
        if not started.done():
            started.set_exception(_draining())
            started.exception()

    async def with_agent(
        self,
        scope: Scope,
        agent_id: str,
        options: AgentOptions | None,
        work: Callable[[LiveAgent], Awaitable[T]],
    ) -> T:
        """Does work with the live agent, waking it; again if it was just stopping."""
        while True:
            live = await self.find(AgentKey(scope.key, agent_id), scope, options)
            try:
                return await work(live)
            except AgentStoppingError:
                await live.gone.wait()

    async def stop(
        self, live: LiveAgent, reason: StopReason, budget: timedelta, *, finish_run: bool
    ) -> int:
        """Stops an agent, or waits for the stop that is under way; goes on when the caller is gone."""
        if live.stopping is None:
            if self._tasks is None or live.gone.is_set():
                return 0
            live.stopping = self._tasks.create_task(
                _stopped(live, reason, budget, finish_run=finish_run)
            )
        else:
            # Of two stops the one that has less patience counts.
            patience = budget if finish_run else timedelta(0)
            await asyncio.wait({live.stopping}, timeout=patience / timedelta(seconds=1))
            live.agent.cancel_run()
        await asyncio.wait({live.stopping})
        return live.stopping.result()

    def _begin_stop(self, live: LiveAgent, reason: StopReason) -> None:
        """Begins to stop an agent that rests."""
        if live.stopping is None and self._tasks is not None:
            live.stopping = self._tasks.create_task(
                _stopped(live, reason, timedelta(0), finish_run=True)
            )


async def _stopped(
    live: LiveAgent, reason: StopReason, budget: timedelta, *, finish_run: bool
) -> int:
    """Stops an agent to its end, whatever goes wrong."""
    try:
        unsaved = await live.agent.stop(reason, budget, finish_run=finish_run)
    except Exception:
        logger.exception("an agent did not stop properly")
        live.agent.abandon()
        unsaved = live.agent.unsaved
    await live.gone.wait()
    return unsaved


def _draining() -> UnavailableError:
    return UnavailableError(
        "SERVER_DRAINING", "the server is shutting down", retry_after=timedelta(seconds=2)
    )


def _passes(error: Exception) -> bool:
    """Says whether what kept an agent from starting may be over later."""
    if isinstance(error, UnavailableError | LimitExceededError):
        return True
    return isinstance(error, PluginError) and error.reason in RETRYABLE


def _cause(error: Exception) -> Exception:
    """Takes the one error out of a group: task groups wrap what their body raised."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _log_end(key: AgentKey, error: Exception, *, was_started: bool) -> None:
    cause = _cause(error)
    reason = cause.reason if isinstance(cause, SagentryError) else "INTERNAL"
    extra = {"agent_id": key.agent_id, "reason": reason}
    if was_started:
        logger.error("agent ended by a fault", extra=extra, exc_info=error)
    elif isinstance(cause, SagentryError):
        logger.warning("agent did not start", extra=extra)
    else:
        logger.error("agent did not start", extra=extra, exc_info=error)
