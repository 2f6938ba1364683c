"""One live agent: takes commands, owns the run, tells readers.

All of it happens on one event loop and every step between two waits is whole, so the loop itself is the
mailbox: a command never meets a half-made change, and a cancel never stands behind other commands. What
waits — preprocessing, disks, stores, the model — runs in tasks that the agent owns; a caller that goes
away never ends them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from sagentry.server.agent.core import AgentCore
from sagentry.server.agent.items import failure_notice, notice
from sagentry.server.agent.ledger import QueuedWrite
from sagentry.server.agent.pipeline import DisplayPipeline
from sagentry.server.agent.run import RunExecution, RunResult
from sagentry.server.agent.saver import StateSaver
from sagentry.server.domain.display import ConversationCounters, DisplayMessage
from sagentry.server.domain.events import (
    AgentStopped,
    AgentView,
    DisplayMessageSaved,
    DisplayMessageUpdated,
    EventBody,
    PluginDegraded,
    PluginRecovered,
    RunEnded,
    RunStarted,
    Snapshot,
    StatusChanged,
    WriteRejected,
)
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import MessageStatus
from sagentry.server.domain.runs import (
    AgentStatus,
    Lifecycle,
    Run,
    RunEnd,
    RunError,
    RunPhase,
    StopReason,
)
from sagentry.server.domain.state import Change, HeldDelivered, RunRecorded, StatusSet
from sagentry.server.domain.writes import DisplayWrite, RowsSaved, RowUpdated, WriteOutcome
from sagentry.server.errors import PluginError, SagentryError, StaleEpochError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AgentStoppingError(Exception):
    """The agent is stopping: the command must find or start another one."""


_LIFECYCLE_OF_END = {
    RunEnd.COMPLETED: Lifecycle.ON_COMPLETION,
    RunEnd.CANCELLED: Lifecycle.ON_CANCEL,
    RunEnd.ERROR: Lifecycle.ON_ERROR,
}

_STATUS_OF_END = {
    RunEnd.COMPLETED: AgentStatus.IDLE,
    RunEnd.CANCELLED: AgentStatus.CANCELLED,
    RunEnd.ERROR: AgentStatus.ERROR,
}

SHOWN_RUNS = 16
"""Runs in a snapshot."""

FAULT = RunError("INTERNAL", "Something went wrong in the server. The cause is in its log.")


class Agent:
    """A live agent. Made by recovery, kept by the registry.

    Args:
        core: Its shared parts.
        settle_timeout: How long replies and run ends wait for stores.
    """

    def __init__(self, core: AgentCore, *, settle_timeout: timedelta) -> None:
        """Begins without tasks; `serve` runs them."""
        self.core = core
        self._rows: dict[str, tuple[DisplayMessage, ...] | None] = {}
        self.counters = ConversationCounters()
        self.last_activity = core.clock.now()
        self._settle_timeout = settle_timeout
        self._tasks: asyncio.TaskGroup | None = None
        self._execution: RunExecution | None = None
        self._current = ""
        self._cancelled = ""
        self._running: asyncio.Future[None] | None = None
        self.promised: Run | None = None
        """A run that was promised to a message whose record is on its way to the disk."""
        self._phase = RunPhase.ENDED
        self._run_ended: dict[str, asyncio.Event] = {}
        self._stopping = asyncio.Event()
        self._fenced = asyncio.Event()
        self._is_closing = False
        self.pipeline: DisplayPipeline
        self.saver: StateSaver

    # --- life

    def connect(
        self, pipeline: DisplayPipeline, saver: StateSaver, *, wants_checkpoints: bool
    ) -> None:
        """Gives the agent what tells it of stores; once, before `serve`."""
        self.pipeline = pipeline
        self.saver = saver

        def checkpoint() -> None:
            if wants_checkpoints:
                saver.want(Lifecycle.CHECKPOINT)

        self.core.checkpoint = checkpoint

    async def serve(self, ready: asyncio.Event) -> None:
        """Runs the agent until `stop` is done or the conversation is lost to another owner."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            workers = [
                tasks.create_task(self.pipeline.run()),
                tasks.create_task(self.saver.run()),
            ]
            watch = tasks.create_task(self._watch_fence())
            ready.set()
            await self._stopping.wait()
            for worker in (*workers, watch):
                worker.cancel()
        self._tasks = None

    async def stop(self, reason: StopReason, budget: timedelta, *, finish_run: bool) -> int:
        """Ends the run, saves the state, ends the tasks. Returns how many writes are unsaved."""
        self._is_closing = True
        if self._current and finish_run:
            await self.wait_for_end(self._current, budget)
        if self._current:
            self.cancel_run()
            await self.wait_for_end(self._current)
        self.saver.want(Lifecycle.ON_SHUTDOWN, release=True)
        await self._settle(self._settle_timeout)
        unsaved = self.unsaved
        self.core.publish(AgentStopped(reason))
        self._stopping.set()
        return unsaved

    async def _watch_fence(self) -> None:
        """Ends the agent when another server has claimed the conversation: it writes nothing more."""
        await self._fenced.wait()
        self._is_closing = True
        self.cancel_run()
        self.core.publish(AgentStopped(StopReason.FENCED))
        self._stopping.set()

    def own(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Runs work that goes on when the caller is gone, and returns its answer to come."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._tasks is None or self._is_closing:
            work.close()
            raise AgentStoppingError
        self._tasks.create_task(_deliver(work, answer))
        return answer

    @property
    def is_stopping(self) -> bool:
        """Whether the agent takes no more commands."""
        return self._is_closing

    @property
    def is_fenced(self) -> bool:
        """Whether another server has claimed the conversation."""
        return self._fenced.is_set()

    # --- runs

    @property
    def current_run_id(self) -> str:
        """The run under way; empty for none."""
        return self._current

    @property
    def status(self) -> AgentStatus:
        """What the agent does."""
        return AgentStatus.RUNNING if self._current else self.core.state.status

    @property
    def unsaved(self) -> int:
        """How many writes are not acknowledged by their stores."""
        return self.pipeline.unsaved + (0 if self.saver.is_idle else 1)

    def planned_run(self) -> Run | None:
        """Returns the run that will deliver the held messages, if one was promised."""
        for run in self.core.state.runs.values():
            if run.end is None and not run.begun and run.run_id != self._current:
                return run
        return None

    def claim_run(self, run: Run) -> None:
        """Makes the run the one under way, before anything of it is recorded."""
        if self.promised is not None and self.promised.run_id == run.run_id:
            self.promised = None
        self._current = run.run_id
        self._phase = RunPhase.MODEL
        self._run_ended.setdefault(run.run_id, asyncio.Event())

    def release_run(self) -> None:
        """Takes a claim back: the run could not be recorded."""
        self._run_ended.pop(self._current, None)
        self._current = ""
        self._phase = RunPhase.ENDED

    def begin_run(self, run: Run, message_id: str = "") -> None:
        """Begins a claimed and recorded run. Returns at once."""
        self._running = self.own(self._run(run, message_id))

    def cancel_run(self) -> None:
        """Cancels the run under way, also one that is only claimed yet. Returns at once."""
        self._cancelled = self._current
        if self._execution is not None:
            self._execution.cancel()

    async def wait_for_end(self, run_id: str, timeout: timedelta | None = None) -> None:
        """Returns when a run that is known and not ended has ended and settled, or the time is over."""
        seconds = None if timeout is None else timeout / timedelta(seconds=1)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended(run_id).wait()

    def phase_of(self, run: Run) -> RunPhase:
        """Says where a run is."""
        if run.run_id == self._current:
            return self._phase_now()
        return RunPhase.ENDED if run.end is not None else RunPhase.MODEL

    def _phase_now(self) -> RunPhase:
        if self._phase is RunPhase.MODEL and self._execution and self._execution.batch:
            return RunPhase.TOOLS
        return self._phase

    def _ended(self, run_id: str) -> asyncio.Event:
        return self._run_ended.setdefault(run_id, asyncio.Event())

    async def _run(self, run: Run, message_id: str) -> None:
        """Runs one run and those that held messages ask for after it."""
        next_run: Run | None = run
        announced = False
        while next_run is not None:
            result = await self._execute(next_run, message_id, announced=announced)
            next_run = await self._finish_run(result)
            message_id, announced = "", True

    async def _execute(self, run: Run, message_id: str, *, announced: bool) -> RunResult:
        begun = replace(run, begun=True)
        self._execution = RunExecution(self.core, begun)
        if self._cancelled == run.run_id:
            self._execution.cancel()
        try:
            events: list[EventBody] = [RunStarted(message_id)]
            if not announced:
                events.insert(0, StatusChanged(AgentStatus.RUNNING))
            await self.core.record(
                [HeldDelivered(), RunRecorded(begun)], events=events, run_id=run.run_id
            )
            return await self._execution.execute()
        except SagentryError as error:
            logger.warning("run failed", extra={"reason": error.reason, "run_id": run.run_id})
            return RunResult(RunEnd.ERROR, RunError(error.reason, error.message))
        except Exception:
            # Whatever our own code did wrong: the run ends, and the agent goes on.
            logger.exception("run failed", extra={"run_id": run.run_id})
            return RunResult(RunEnd.ERROR, FAULT)

    async def _finish_run(self, result: RunResult) -> Run | None:
        """Records, saves, settles and announces the end; returns the run to go on with."""
        execution = self._execution
        if execution is None:
            return None
        self._phase = RunPhase.SETTLING
        ended = replace(
            execution.run, end=result.end, error=result.error, end_time=self.core.clock.now()
        )
        changes: list[Change] = [
            RunRecorded(ended),
            StatusSet(_STATUS_OF_END[result.end], result.error),
        ]
        try:
            await self.core.record(changes, self._end_notice(result))
        except SagentryError as error:
            # The disk is full: the end is announced all the same; after a restart the run is lost.
            logger.exception("the end of a run is not recorded", extra={"reason": error.reason})
        self.saver.want(_LIFECYCLE_OF_END[result.end])
        await self._settle(self._settle_timeout)
        self.core.publish(
            RunEnded(result.end, result.error, ended.usage, self.unsaved), ended.run_id
        )
        return self._after_run(ended, result)

    def _after_run(self, ended: Run, result: RunResult) -> Run | None:
        self._execution = None
        goes_on = result.end is RunEnd.COMPLETED and not self._is_closing
        planned = self.planned_run() if goes_on else None
        self._current = ""
        self._phase = RunPhase.ENDED
        if planned is not None:
            self.claim_run(planned)
        else:
            self.core.publish(StatusChanged(_STATUS_OF_END[result.end], result.error))
        self._ended(ended.run_id).set()
        self._run_ended.pop(ended.run_id, None)
        self.last_activity = self.core.clock.now()
        return planned

    def _end_notice(self, result: RunResult) -> list[DisplayWrite]:
        if result.end is RunEnd.CANCELLED:
            text = "Agent execution cancelled."
            return [self.core.notice_write(notice(text, MessageStatus.CANCELLED), text)]
        if result.error is not None and not result.is_shown:
            text = f"Sorry, I encountered an error: {result.error.message}"
            return [self.core.notice_write(failure_notice(text, result.error.reason), text)]
        return []

    async def _settle(self, timeout: timedelta) -> None:
        if self._fenced.is_set():
            return
        async with asyncio.TaskGroup() as waiting:
            waiting.create_task(self.pipeline.settle(timeout))
            waiting.create_task(self.saver.settle(timeout))

    async def settle_write(
        self, request_id: str, timeout: timedelta
    ) -> tuple[tuple[DisplayMessage, ...], int]:
        """Waits for one recorded display write; returns its rows and how many writes are unsaved."""
        unsaved = await self.pipeline.settle(timeout, {request_id})
        return self._rows.pop(request_id, None) or (), unsaved

    def expect_rows(self, request_id: str) -> None:
        """Keeps the rows of a write until `settle_write` takes them. Call it before the record."""
        self._rows[request_id] = None

    def forget_rows(self, request_id: str) -> None:
        """Takes `expect_rows` back."""
        self._rows.pop(request_id, None)

    # --- what the pipeline and the saver tell

    def on_outcome(self, write: QueuedWrite, outcome: WriteOutcome) -> None:
        """Announces stored rows."""
        match outcome:
            case RowsSaved(rows=rows):
                for row in rows:
                    self._saw(row)
                    self.core.publish(DisplayMessageSaved(row))
                if write.request.request_id in self._rows:
                    self._rows[write.request.request_id] = rows
            case RowUpdated(row=row):
                self._saw(row)
                self.core.publish(DisplayMessageUpdated(row))
            case _:
                logger.info("a row to update is not there", extra={"entry": write.entry_id})

    def _saw(self, row: DisplayMessage) -> None:
        self.counters = ConversationCounters(
            max(self.counters.last_position, row.position),
            max(self.counters.last_change, row.change),
        )

    def on_rejected(self, write: QueuedWrite, error: PluginError) -> None:
        """Announces a write that was set aside."""
        written = write.request.write
        message = getattr(written, "message", None)
        message_id = message.message_id if message else getattr(written, "message_id", "")
        self.core.publish(
            WriteRejected(error.plugin, error.method, message_id, error.reason, str(write.entry_id))
        )

    def on_degraded(self, error: PluginError) -> None:
        """Announces a store that fails."""
        self.core.publish(
            PluginDegraded(
                error.plugin, error.method, error.reason, "writes wait in the server's journal"
            )
        )

    def on_recovered(self) -> None:
        """Announces a store that works again."""
        self.core.publish(PluginRecovered(self.core.display_plugin))

    def on_fenced(self, error: StaleEpochError) -> None:
        """Ends the agent: another server owns the conversation."""
        logger.warning("conversation is owned by another server", extra={"facts": error.facts})
        self._fenced.set()

    # --- views

    def view(self) -> AgentView:
        """Shows the agent as it is now."""
        state = self.core.state
        return AgentView(
            agent_id=self.core.key.agent_id,
            conversation_id=self.core.conversation.conversation_id,
            profile=self.core.profile.name,
            status=self.status,
            live=True,
            run_id=self._current,
            todos=state.todos,
            title=state.title,
            held_messages=len(state.held),
            error=state.error if not self._current else None,
            pause_reason=state.pause_reason,
            owner_epoch=self.core.owner_epoch,
            last_activity_time=self.last_activity,
        )

    def snapshot(self) -> Snapshot:
        """Shows the agent to a reader that begins: growing messages with all that was streamed."""
        execution = self._execution
        growing = execution.growing if execution else None
        batch = execution.batch if execution else None
        return Snapshot(
            agent=self.view(),
            growing_messages=(
                (growing.message(MessageStatus.STREAM_ERROR),)
                if growing is not None and not growing.is_empty
                else ()
            ),
            calls=batch.in_flight() if batch is not None else (),
            held_messages=tuple(self.core.state.held),
            runs=tuple(reversed(self.core.state.runs.values()))[:SHOWN_RUNS],
            last_position=self.counters.last_position,
            last_change=self.counters.last_change,
        )


def new_run(core: AgentCore) -> Run:
    """Makes a run that has not begun."""
    return Run(run_id=new_id("run"), start_time=core.clock.now())


async def _deliver(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    """Gives the outcome of work to whoever waits; a failure must not end the agent's other tasks."""
    try:
        answer.set_result(await work)
    except Exception as error:  # noqa: BLE001 - handed on, not swallowed
        answer.set_exception(error)
        # Nobody may be waiting any more, and asyncio need not warn of that.
        answer.exception()
