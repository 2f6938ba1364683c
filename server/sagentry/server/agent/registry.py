"""The live agents of this server: finds, starts, wakes and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sagentry.server.agent.acceptance import Acceptance
from sagentry.server.agent.agent import Agent, AgentStoppingError
from sagentry.server.agent.recovery import AgentServices, Recovery, fold, options_differ
from sagentry.server.agent.streams import absent_snapshot
from sagentry.server.domain import codec
from sagentry.server.domain.commands import (
    AddMessage,
    AddMessageReply,
    AgentOptions,
    AgentPage,
    CancelRun,
    CancelRunReply,
    GetRun,
    ListAgents,
    ListRows,
    RunReply,
    StartAgent,
    StartAgentReply,
    StartRun,
    StartRunReply,
    StateReply,
    StopAgent,
    StopAgentReply,
    SubscribeEvents,
)
from sagentry.server.domain.display import DisplayPage
from sagentry.server.domain.events import AgentView, Snapshot, StreamEndReason
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.runs import AgentStatus, Run, RunPhase, StopReason
from sagentry.server.domain.scope import AgentKey, ConversationKey, Scope
from sagentry.server.domain.state import SCHEMA_VERSION, AgentState
from sagentry.server.errors import (
    InvalidStateError,
    LimitExceededError,
    NotFoundError,
    PluginError,
    SagentryError,
    UnavailableError,
)
from sagentry.server.ports import PluginCall, Preprocessor
from sagentry.server.stream_ports import EventSource

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECOVERIES_AT_ONCE = 8
RECOVERY_PAUSE = timedelta(seconds=1)
STOP_BUDGET = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class _Live:
    agent: Agent
    acceptance: Acceptance
    gone: asyncio.Event


class AgentRegistry:
    """Implements the agent directory.

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
        self._live: dict[AgentKey, _Live] = {}
        self._starting: dict[AgentKey, asyncio.Future[_Live]] = {}
        self._conversations: dict[ConversationKey, AgentKey] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()

    # --- life of the registry

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
        """Stops all agents within the budget, states saved or journalled. Idempotent."""
        # First: nobody may wake an agent that is being stopped.
        self._closing.set()
        while self._live or self._starting:
            if self._starting:
                await asyncio.wait(list(self._starting.values()))
            async with asyncio.TaskGroup() as stopping:
                for live in list(self._live.values()):
                    stopping.create_task(
                        self._stop(live, StopReason.DRAINING, budget, finish_run=True)
                    )
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
                        await self._find(key, Scope(conversation.scope), options)
                except UnavailableError:
                    await self._services.clock.sleep(RECOVERY_PAUSE)
                except SagentryError as error:
                    if error.reason not in ("PLUGIN_UNAVAILABLE", "PLUGIN_TIMEOUT"):
                        logger.exception(
                            "an agent cannot be recovered",
                            extra={"agent_id": agent_id, "reason": error.reason},
                        )
                        return
                    await self._services.clock.sleep(RECOVERY_PAUSE)
                else:
                    return

        async with asyncio.TaskGroup() as tasks:
            for conversation, agent_id in await self._services.journal.conversations():
                tasks.create_task(recover(conversation, agent_id))

    # --- finding and starting

    async def _find(self, key: AgentKey, scope: Scope, options: AgentOptions | None) -> _Live:
        """Returns the live agent; starts it if it is not."""
        while True:
            live = self._live.get(key)
            if live is not None:
                if not live.agent.is_stopping:
                    return live
                await live.gone.wait()
                continue
            starting = self._starting.get(key)
            if starting is None:
                starting = self._begin_start(key, scope, options)
            await asyncio.wait({starting})
            return starting.result()

    def _begin_start(
        self, key: AgentKey, scope: Scope, options: AgentOptions | None
    ) -> asyncio.Future[_Live]:
        if self._tasks is None or self._closing.is_set():
            raise UnavailableError(
                "SERVER_DRAINING", "the server is shutting down", retry_after=timedelta(seconds=2)
            )
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
        actual = len(self._live) + len(self._starting)
        if actual >= self._most_agents:
            raise LimitExceededError(
                "LIMIT_EXCEEDED",
                "too many live agents",
                limit=self._most_agents,
                actual=actual,
                limit_name="live_agents",
            )
        started: asyncio.Future[_Live] = asyncio.get_running_loop().create_future()
        self._starting[key] = started
        self._conversations[conversation] = key
        self._tasks.create_task(self._host(key, scope, options, conversation, started))
        return started

    async def _host(
        self,
        key: AgentKey,
        scope: Scope,
        options: AgentOptions | None,
        conversation: ConversationKey,
        started: asyncio.Future[_Live],
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
                live = _Live(agent, acceptance, gone)
                self._live[key] = live
                self._starting.pop(key, None)
                started.set_result(live)
        except Exception as error:  # noqa: BLE001 - handed to who waits, and logged
            _log_end(key, error, was_started=started.done())
            if not started.done():
                started.set_exception(_cause(error))
                started.exception()
        finally:
            self._starting.pop(key, None)
            live_before = self._live.pop(key, None)
            self._conversations.pop(conversation, None)
            self._services.streams.detach(key)
            if live_before is not None and live_before.agent.is_fenced:
                self._services.streams.end(key, StreamEndReason.FENCED, reconnect=True)
            gone.set()

    async def _with(
        self,
        scope: Scope,
        agent_id: str,
        options: AgentOptions | None,
        work: Callable[[_Live], Awaitable[T]],
    ) -> T:
        """Does work with the live agent, waking it; again if it was just stopping."""
        while True:
            live = await self._find(AgentKey(scope.key, agent_id), scope, options)
            try:
                return await work(live)
            except AgentStoppingError:
                await live.gone.wait()

    def live_agent(self, key: AgentKey) -> Agent | None:
        """Returns the agent if it is live."""
        live = self._live.get(key)
        return live.agent if live is not None else None

    # --- commands

    async def start_agent(self, command: StartAgent) -> StartAgentReply:
        """Starts an agent, or finds it live."""
        key = AgentKey(command.scope.key, command.agent_id)
        was_live = key in self._live
        live = await self._find(key, command.scope, command.options)
        wanted = command.options.options if command.options else None
        stored = live.agent.core.state.options
        return StartAgentReply(
            agent=live.agent.view(),
            started=not was_live,
            options_applied=not options_differ(wanted, stored),
        )

    async def add_message(self, command: AddMessage) -> AddMessageReply:
        """Gives an agent a message."""
        return await self._with(
            command.scope,
            command.agent_id,
            command.options,
            lambda live: live.acceptance.add_message(command),
        )

    async def start_run(self, command: StartRun) -> StartRunReply:
        """Begins a run without a new message."""
        return await self._with(
            command.scope,
            command.agent_id,
            command.options,
            lambda live: live.acceptance.start_run(command),
        )

    async def cancel_run(self, command: CancelRun) -> CancelRunReply:
        """Cancels a run and keeps what there is of it."""
        live = self._live.get(AgentKey(command.scope.key, command.agent_id))
        if live is None:
            await self._stored(command.scope, command.agent_id)
            return CancelRunReply(already_ended=True)
        current = live.agent.current_run_id
        if not current or command.run_id not in ("", current):
            return CancelRunReply(already_ended=True)
        live.agent.cancel_run()
        await live.agent.wait_for_end(current)
        return CancelRunReply(already_ended=False, unsaved=live.agent.unsaved)

    async def stop_agent(self, command: StopAgent) -> StopAgentReply:
        """Puts an agent to sleep."""
        live = self._live.get(AgentKey(command.scope.key, command.agent_id))
        if live is None:
            return StopAgentReply(stopped=False)
        budget = command.timeout or STOP_BUDGET
        unsaved = await self._stop(
            live, StopReason.REQUESTED, budget, finish_run=command.finish_run
        )
        return StopAgentReply(stopped=True, unsaved=unsaved)

    async def _stop(
        self, live: _Live, reason: StopReason, budget: timedelta, *, finish_run: bool
    ) -> int:
        unsaved = await live.agent.stop(reason, budget, finish_run=finish_run)
        await live.gone.wait()
        return unsaved

    # --- reading

    async def get_agent(self, scope: Scope, agent_id: str) -> AgentView:
        """Reads an agent; a sleeping one from its store."""
        live = self._live.get(AgentKey(scope.key, agent_id))
        if live is not None:
            return live.agent.view()
        state, epoch = await self._stored(scope, agent_id)
        options = state.options
        return AgentView(
            agent_id=agent_id,
            conversation_id=agent_id,
            profile=options.profile if options else "",
            status=AgentStatus.ASLEEP,
            live=False,
            todos=state.todos,
            title=state.title,
            held_messages=len(state.held),
            error=state.error,
            pause_reason=state.pause_reason,
            owner_epoch=epoch,
        )

    async def list_agents(self, command: ListAgents) -> AgentPage:
        """Lists live agents of the scope, by agent_id."""
        views = sorted(
            (
                live.agent.view()
                for key, live in self._live.items()
                if key.scope == command.scope.key and key.agent_id > command.after
            ),
            key=lambda view: view.agent_id,
        )
        if command.statuses:
            views = [view for view in views if view.status in command.statuses]
        return AgentPage(tuple(views[: command.page_size]), has_more=len(views) > command.page_size)

    async def get_run(self, command: GetRun) -> RunReply:
        """Reads a run; waits for its end at most `wait`."""
        key = AgentKey(command.scope.key, command.agent_id)
        live = self._live.get(key)
        if live is None:
            state, _ = await self._stored(command.scope, command.agent_id)
            run = _known(state, command)
            if run.end is not None:
                return RunReply(run, RunPhase.ENDED, state.message(run.final_message_id))
            # Left open by a crash, or promised: the agent, once awake, ends it or begins it.
            live = await self._find(key, command.scope, None)
        state = live.agent.core.state
        run = _known(state, command)
        if run.end is None or live.agent.current_run_id == run.run_id:
            await live.agent.wait_for_end(run.run_id, command.wait)
        run = state.runs.get(command.run_id, run)
        phase = live.agent.phase_of(run)
        final = state.message(run.final_message_id) if phase is RunPhase.ENDED else None
        return RunReply(run, phase, final)

    async def get_state(self, scope: Scope, agent_id: str) -> StateReply:
        """Reads the whole state."""
        live = self._live.get(AgentKey(scope.key, agent_id))
        if live is not None:
            state = live.agent.core.state
        else:
            state, _ = await self._stored(scope, agent_id)
        return StateReply(codec.to_json(state, AgentState), SCHEMA_VERSION, state.revision)

    async def list_rows(self, command: ListRows) -> DisplayPage:
        """Lists rows of a conversation from its store."""
        call = PluginCall(
            scope=command.scope,
            conversation_id=command.conversation_id,
            agent_id="",
            request_id=new_id("list"),
            timeout=command.timeout,
        )
        return await self._services.display_store.list_rows(
            call, order=command.order, after=command.after, page_size=command.page_size
        )

    async def subscribe(self, command: SubscribeEvents) -> EventSource:
        """Follows an agent, also one that is not live."""
        key = AgentKey(command.scope.key, command.agent_id)
        if command.wake:
            await self._find(key, command.scope, None)
        resting = None
        if key not in self._live:
            try:
                resting = Snapshot(await self.get_agent(command.scope, command.agent_id))
            except NotFoundError:
                resting = absent_snapshot(command.agent_id)
            except (PluginError, UnavailableError):
                # The reader need not wait for the store: what it says of a sleeper is not known yet.
                logger.info("a sleeping agent is shown as absent: its store cannot be asked")
        return self._services.streams.subscribe(key, command, resting)

    async def _stored(self, scope: Scope, agent_id: str) -> tuple[AgentState, int]:
        """Reads a sleeping agent's state without claiming it, the journal's newer patches included."""
        call = PluginCall(
            scope=scope,
            conversation_id=agent_id,
            agent_id=agent_id,
            request_id=new_id("read"),
        )
        entries = await self._services.journal.read(ConversationKey(scope.key, agent_id))
        stored = await self._services.state_store.load(call, claim_as=None)
        folded = fold(stored, entries, self._services.owner_id)
        if not folded.state.revision:
            raise NotFoundError(
                "AGENT_NOT_FOUND", f"there is no agent {agent_id}", agent_id=agent_id
            )
        return folded.state, stored.owner_epoch


def _known(state: AgentState, command: GetRun) -> Run:
    run = state.runs.get(command.run_id)
    if run is None:
        raise NotFoundError(
            "RUN_NOT_FOUND",
            f"agent {command.agent_id} does not remember run {command.run_id}",
            agent_id=command.agent_id,
            run_id=command.run_id,
        )
    return run


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
