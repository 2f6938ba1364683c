"""The agent directory: commands go to a live agent, reading also works on a sleeping one."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from sagentry.server.agent.agent import Agent
from sagentry.server.agent.lives import LiveAgent, LiveAgents
from sagentry.server.agent.recovery import AgentServices, fold, options_differ
from sagentry.server.agent.streams import absent_snapshot
from sagentry.server.agent.work import AgentStoppingError
from sagentry.server.domain import codec
from sagentry.server.domain.commands import (
    AddMessage,
    AddMessageReply,
    AgentPage,
    CancelRun,
    CancelRunReply,
    GetRun,
    ListAgents,
    ListRows,
    PauseRun,
    PauseRunReply,
    ResumeAgent,
    ResumeAgentReply,
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
from sagentry.server.domain.events import AgentView, Snapshot
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunPhase, StopReason
from sagentry.server.domain.scope import AgentKey, ConversationKey, Scope
from sagentry.server.domain.state import SCHEMA_VERSION, AgentState
from sagentry.server.errors import (
    NotFoundError,
    PluginError,
    UnavailableError,
)
from sagentry.server.ports import PluginCall, Preprocessor
from sagentry.server.stream_ports import EventSource, WatchSource

logger = logging.getLogger(__name__)

T = TypeVar("T")

STOP_BUDGET = timedelta(seconds=10)


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
        self._lives = LiveAgents(services, preprocessor, most_agents=most_agents)

    async def serve(self, ready: asyncio.Event) -> None:
        """Runs the agents until `close`; wakes those that the journal has entries of."""
        await self._lives.serve(ready)

    async def close(self, budget: timedelta) -> None:
        """Stops all agents within the budget, states saved or journalled. Idempotent."""
        await self._lives.close(budget)

    def live_agent(self, key: AgentKey) -> Agent | None:
        """Returns the agent if it is live."""
        live = self._lives.get(key)
        return live.agent if live is not None else None

    # --- commands

    async def start_agent(self, command: StartAgent) -> StartAgentReply:
        """Starts an agent, or finds it live."""
        key = AgentKey(command.scope.key, command.agent_id)
        was_live = self._lives.get(key) is not None
        live = await self._lives.find(key, command.scope, command.options)
        wanted = command.options.options if command.options else None
        stored = live.agent.core.state.options
        return StartAgentReply(
            agent=live.agent.view(),
            started=not was_live,
            options_applied=not options_differ(wanted, stored),
        )

    async def add_message(self, command: AddMessage) -> AddMessageReply:
        """Gives an agent a message."""
        return await self._lives.with_agent(
            command.scope,
            command.agent_id,
            command.options,
            lambda live: live.acceptance.add_message(command),
        )

    async def start_run(self, command: StartRun) -> StartRunReply:
        """Begins a run without a new message."""
        return await self._lives.with_agent(
            command.scope,
            command.agent_id,
            command.options,
            lambda live: live.acceptance.start_run(command),
        )

    async def cancel_run(self, command: CancelRun) -> CancelRunReply:
        """Cancels a run and keeps what there is of it."""
        live = await self._lives.present(AgentKey(command.scope.key, command.agent_id))
        if live is None:
            await self._stored(command.scope, command.agent_id)
            return CancelRunReply(already_ended=True)
        current = live.agent.current_run_id
        if not current or command.run_id not in ("", current):
            return CancelRunReply(already_ended=True)
        live.agent.cancel_run()
        await live.agent.wait_for_end(current)
        return CancelRunReply(already_ended=False, unsaved=live.agent.unsaved)

    async def pause_run(self, command: PauseRun) -> PauseRunReply:
        """Pauses a run after the step that it is at."""
        live = await self._lives.present(AgentKey(command.scope.key, command.agent_id))
        if live is None:
            await self._stored(command.scope, command.agent_id)
            return PauseRunReply(already_ended=True)
        try:
            return await live.acceptance.pause_run(command)
        except AgentStoppingError:
            # Its run ends with it.
            return PauseRunReply(already_ended=True)

    async def resume_agent(self, command: ResumeAgent) -> ResumeAgentReply:
        """Goes on with a paused run; wakes the agent. One that does not exist is not made."""
        if self._lives.get(AgentKey(command.scope.key, command.agent_id)) is None:
            await self._stored(command.scope, command.agent_id)
        return await self._lives.with_agent(
            command.scope,
            command.agent_id,
            None,
            lambda live: live.acceptance.resume(command),
        )

    async def stop_agent(self, command: StopAgent) -> StopAgentReply:
        """Puts an agent to sleep."""
        live = await self._lives.present(AgentKey(command.scope.key, command.agent_id))
        if live is None:
            return StopAgentReply(stopped=False)
        budget = command.timeout or STOP_BUDGET
        unsaved = await self._lives.stop(
            live, StopReason.REQUESTED, budget, finish_run=command.finish_run
        )
        return StopAgentReply(stopped=True, unsaved=unsaved)

    def touch_agent(self, scope: Scope, agent_id: str) -> bool:
        """Notes that a live agent is used; returns whether it is live. Never wakes one."""
        live = self._lives.get(AgentKey(scope.key, agent_id))
        if live is None or live.agent.is_stopping:
            return False
        live.agent.touch()
        return True

    # --- reading

    async def get_agent(self, scope: Scope, agent_id: str) -> AgentView:
        """Reads an agent; a sleeping one from its store."""
        key = AgentKey(scope.key, agent_id)
        live = self._lives.get(key)
        if live is not None:
            return self._view(key, live)
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
                self._view(key, live)
                for key, live in self._lives.all()
                if key.scope == command.scope.key and key.agent_id > command.after
            ),
            key=lambda view: view.agent_id,
        )
        if command.statuses:
            views = [view for view in views if view.status in command.statuses]
        return AgentPage(tuple(views[: command.page_size]), has_more=len(views) > command.page_size)

    async def get_run(self, command: GetRun) -> RunReply:
        """Reads a run; waits for its end at most `wait`, also when its agent stops meanwhile."""
        key = AgentKey(command.scope.key, command.agent_id)
        clock = self._services.clock
        deadline = clock.monotonic() + command.wait / timedelta(seconds=1)
        while True:
            live = self._lives.get(key)
            if live is None:
                state, _ = await self._stored(command.scope, command.agent_id)
                run = _known(state.runs.get(command.run_id), command)
                if run.end is not None:
                    phase = RunPhase.PAUSED if run.end is RunEnd.PAUSED else RunPhase.ENDED
                    return RunReply(run, phase, state.message(run.final_message_id))
                # Left open by a crash, or promised: the agent, once awake, ends it or begins it.
                live = await self._lives.find(key, command.scope, None)
            agent = live.agent
            run = _known(agent.run(command.run_id), command)
            left = timedelta(seconds=deadline - clock.monotonic())
            if run.end is None or agent.current_run_id == run.run_id:
                await agent.wait_for_end(run.run_id, max(left, timedelta(0)))
            run = agent.run(command.run_id) or run
            if run.end is None and agent.is_stopping and left > timedelta(0):
                await live.gone.wait()
                continue
            phase = agent.phase_of(run)
            is_over = phase in (RunPhase.ENDED, RunPhase.PAUSED)
            final = agent.core.state.message(run.final_message_id) if is_over else None
            return RunReply(run, phase, final)

    async def get_state(self, scope: Scope, agent_id: str) -> StateReply:
        """Reads the whole state."""
        live = self._lives.get(AgentKey(scope.key, agent_id))
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
            await self._lives.find(key, command.scope, None)
        resting = None
        if self._lives.get(key) is None:
            try:
                resting = Snapshot(await self.get_agent(command.scope, command.agent_id))
            except NotFoundError:
                resting = absent_snapshot(command.agent_id)
            except (PluginError, UnavailableError):
                # The reader need not wait for the store: what it says of a sleeper is not known yet.
                logger.info("a sleeping agent is shown as absent: its store cannot be asked")
        return self._services.streams.subscribe(key, command, resting)

    def watch(self, scope: Scope) -> WatchSource:
        """Watches the live agents of a scope."""
        return self._services.streams.watch(scope.key)

    def _view(self, key: AgentKey, live: LiveAgent) -> AgentView:
        viewers = len(self._services.streams.viewers(key))
        return replace(live.agent.view(), viewers=viewers)

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


def _known(run: Run | None, command: GetRun) -> Run:
    if run is None:
        raise NotFoundError(
            "RUN_NOT_FOUND",
            f"agent {command.agent_id} does not remember run {command.run_id}",
            agent_id=command.agent_id,
            run_id=command.run_id,
        )
    return run
