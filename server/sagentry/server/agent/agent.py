"""One live agent: takes commands, owns the run, tells readers.

All of it happens on one event loop and every step between two waits is whole, so the loop itself is the
mailbox: a command never meets a half-made change, and a cancel never stands behind other commands. What
waits — preprocessing, disks, stores, the model — runs in tasks that the agent owns; a caller that goes
away never ends them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from sagentry.server.agent.core import AgentCore
from sagentry.server.agent.pipeline import DisplayPipeline
from sagentry.server.agent.run import FAULT, RunExecution, RunResult
from sagentry.server.agent.run_ends import STATUS_OF_END, RunEnds
from sagentry.server.agent.saver import StateSaver
from sagentry.server.agent.store_news import StoreNews
from sagentry.server.agent.work import OwnedWork
from sagentry.server.domain.display import DisplayMessage
from sagentry.server.domain.events import (
    AgentStopped,
    AgentView,
    RunEnded,
    RunStarted,
    Snapshot,
    StatusChanged,
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
from sagentry.server.domain.state import HeldDelivered, RunRecorded
from sagentry.server.errors import SagentryError, StaleEpochError

logger = logging.getLogger(__name__)

_LIFECYCLE_OF_END = {
    RunEnd.COMPLETED: Lifecycle.ON_COMPLETION,
    RunEnd.CANCELLED: Lifecycle.ON_CANCEL,
    RunEnd.ERROR: Lifecycle.ON_ERROR,
    RunEnd.PAUSED: Lifecycle.ON_COMPLETION,
}

SHOWN_RUNS = 16
"""Runs in a snapshot."""


class Agent:
    """A live agent. Made by recovery, kept by the registry.

    Args:
        core: Its shared parts.
        settle_timeout: How long replies and run ends wait for stores.
    """

    def __init__(self, core: AgentCore, *, settle_timeout: timedelta) -> None:
        """Begins without tasks; `serve` runs them."""
        self.core = core
        self.news = StoreNews(core.publish, self._fence)
        self.last_activity = core.clock.now()
        self.active_at = core.clock.monotonic()
        """When it was last used, on the clock that never goes back."""
        self._settle_timeout = settle_timeout
        self.work = OwnedWork(self.touch)
        self._workers: list[asyncio.Task[None]] = []
        self._execution: RunExecution | None = None
        self._current = ""
        self._cancelled = ""
        self._pause: tuple[str, str] = ("", "")
        self.promised: Run | None = None
        """A run that was promised to a message whose record is on its way to the disk."""
        self._ends = RunEnds(core)
        self._phase = RunPhase.ENDED
        self._run_ended: dict[str, asyncio.Event] = {}
        self._stopping = asyncio.Event()
        self._fenced: StaleEpochError | None = None
        self.stop_reason = StopReason.FAULT
        """Why it is not live any more; a fault unless it says another reason at its end."""
        self._has_said_stopped = False
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
        try:
            async with asyncio.TaskGroup() as tasks:
                self.work.tasks = tasks
                self._workers = [
                    tasks.create_task(self.pipeline.run()),
                    tasks.create_task(self.saver.run()),
                ]
                ready.set()
                await self._stopping.wait()
                self._halt()
        except Exception:
            self._say_stopped(StopReason.FAULT)
            raise
        finally:
            # Whatever the reason, nobody may wait for an agent that is not there.
            self.work.close()
            self.work.tasks = None
            for ended in self._run_ended.values():
                ended.set()

    def _halt(self) -> None:
        """Sends nothing more to the stores; what they have not is in the journal."""
        self.pipeline.close()
        self.saver.close()
        for worker in self._workers:
            worker.cancel()

    async def stop(self, reason: StopReason, budget: timedelta, *, finish_run: bool) -> int:
        """Ends the run, saves the state, ends the tasks; once. Returns how many writes are unsaved."""
        self.work.close()
        if self._current and finish_run:
            await self.wait_for_end(self._current, budget)
        while self._current and self.work.tasks is not None:
            self.cancel_run()
            await self.wait_for_end(self._current)
        with suppress(SagentryError):
            await self._ends.record_owed()
        # What was accepted at the last moment belongs to what is saved.
        await self.core.ledger.settled()
        self.saver.want(Lifecycle.ON_SHUTDOWN, release=True)
        await self._settle(self._settle_timeout)
        unsaved = self.unsaved
        self._say_stopped(reason)
        self._stopping.set()
        return unsaved

    def abandon(self) -> None:
        """Ends the tasks without another word: what is recorded is in the journal."""
        self.work.close()
        self._stopping.set()

    def _say_stopped(self, reason: StopReason) -> None:
        if not self._has_said_stopped:
            self._has_said_stopped = True
            self.stop_reason = reason
            self.core.publish(AgentStopped(reason))

    def _fence(self, error: StaleEpochError) -> None:
        """Ends the agent: another server has claimed the conversation. It writes nothing more."""
        if self._fenced is not None or self.work.tasks is None:
            return
        self._fenced = error
        self.work.close()
        self.core.ledger.close(error, [write.entry_id for write in self.pipeline.waiting()])
        self._halt()
        self.work.tasks.create_task(self._end_fenced())

    async def _end_fenced(self) -> None:
        while self._current:
            self.cancel_run()
            await self.wait_for_end(self._current)
        self._say_stopped(StopReason.FENCED)
        self._stopping.set()

    def touch(self) -> None:
        """Notes that the agent is used."""
        self.last_activity = self.core.clock.now()
        self.active_at = self.core.clock.monotonic()

    @property
    def is_resting(self) -> bool:
        """Whether nothing is under way: no run, no command, no write that its store lacks."""
        is_busy = self._current or self.promised is not None or self.work.under_way or self.unsaved
        return not is_busy and not self.work.is_closed

    def try_to_rest(self) -> bool:
        """Closes the door of an agent that rests, so that it may be stopped; False if it does not rest."""
        if not self.is_resting:
            return False
        self.work.close()
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether the agent takes no more commands."""
        return self.work.is_closed

    @property
    def is_fenced(self) -> bool:
        """Whether another server has claimed the conversation."""
        return self._fenced is not None

    # --- runs

    @property
    def current_run_id(self) -> str:
        """The run under way; empty for none."""
        return self._current

    @property
    def status(self) -> AgentStatus:
        """What the agent does."""
        return AgentStatus.RUNNING if self._current else self._ends.standing().status

    @property
    def unsaved(self) -> int:
        """How many writes are not acknowledged by their stores."""
        return self.pipeline.unsaved + (0 if self.saver.is_saved else 1)

    def run(self, run_id: str) -> Run | None:
        """Returns a run as it is, also one whose end could not be recorded yet."""
        return self._ends.owed_run(run_id) or self.core.state.runs.get(run_id)

    def planned_run(self) -> Run | None:
        """Returns the run that will deliver the held messages, if one was promised."""
        for run in self.core.state.runs.values():
            is_over = run.end is not None or self._ends.owed_run(run.run_id) is not None
            if not is_over and not run.begun and run.run_id != self._current:
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
        self._set_ended(self._current)
        self._current = ""
        self._phase = RunPhase.ENDED

    def begin_run(self, run: Run, message_id: str = "") -> None:
        """Begins a claimed and recorded run, also while stopping: then it ends soon. Returns at once."""
        running = self.work.own(self._run(run, message_id), while_closed=True)
        del running

    def cancel_run(self) -> None:
        """Cancels the run under way, also one that is only claimed yet. Returns at once."""
        self._cancelled = self._current
        if self._execution is not None:
            self._execution.cancel()

    def pause_run(self, reason: str) -> None:
        """Pauses the run under way before its next model call. Returns at once."""
        self._pause = (self._current, reason)
        if self._execution is not None:
            self._execution.pause(reason)

    def paused_run(self) -> Run | None:
        """Returns the run that may go on, if the agent is paused."""
        if self.status is not AgentStatus.PAUSED:
            return None
        runs = (self.run(run_id) for run_id in reversed(self.core.state.runs))
        return next((run for run in runs if run is not None and run.end is RunEnd.PAUSED), None)

    async def wait_for_end(self, run_id: str, timeout: timedelta | None = None) -> None:
        """Returns when a run that is known and not ended has ended and settled, or the time is over."""
        if self.work.tasks is None:
            return
        seconds = None if timeout is None else timeout / timedelta(seconds=1)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended(run_id).wait()

    def phase_of(self, run: Run) -> RunPhase:
        """Says where a run is."""
        if run.run_id == self._current:
            return self._phase_now()
        if run.end is None:
            return RunPhase.MODEL
        return RunPhase.PAUSED if run.end is RunEnd.PAUSED else RunPhase.ENDED

    def _phase_now(self) -> RunPhase:
        if self._phase is RunPhase.MODEL and self._execution and self._execution.batch:
            return RunPhase.TOOLS
        return self._phase

    def _ended(self, run_id: str) -> asyncio.Event:
        return self._run_ended.setdefault(run_id, asyncio.Event())

    def _set_ended(self, run_id: str) -> None:
        ended = self._run_ended.pop(run_id, None)
        if ended is not None:
            ended.set()

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
        paused, reason = self._pause
        if paused == run.run_id:
            self._execution.pause(reason)
        try:
            await self._ends.record_owed()
            await self._record_begin(begun, message_id, announced=announced)
            return await self._execution.execute()
        except SagentryError as error:
            logger.warning("run failed", extra={"reason": error.reason, "run_id": run.run_id})
            return RunResult(RunEnd.ERROR, RunError(error.reason, error.message))
        except Exception:
            # Whatever our own code did wrong: the run ends, and the agent goes on.
            logger.exception("run failed", extra={"run_id": run.run_id})
            return RunResult(RunEnd.ERROR, FAULT)

    async def _record_begin(self, run: Run, message_id: str, *, announced: bool) -> None:
        mended = self._ends.mended()
        resumed = run.turns > 0

        def tell() -> None:
            for body, run_id in mended.events:
                self.core.publish(body, run_id)
            if not announced:
                self.core.publish(StatusChanged(AgentStatus.RUNNING), run.run_id)
            self.core.publish(RunStarted(message_id, resumed=resumed), run.run_id)

        # What was held while a run was paused belongs to the run behind it.
        held = [] if resumed else [HeldDelivered()]
        changes = [*mended.changes, *held, RunRecorded(run)]
        await self.core.record(changes, mended.writes, then=tell)

    async def _finish_run(self, result: RunResult) -> Run | None:
        """Records, saves, settles and announces the end; returns the run to go on with."""
        execution = self._execution
        assert execution is not None  # noqa: S101 - set by `_execute`
        self._phase = RunPhase.SETTLING
        if self._fenced is not None:
            result = RunResult(
                RunEnd.ERROR, RunError(self._fenced.reason, self._fenced.message), is_shown=True
            )
        ended = replace(
            execution.run, end=result.end, error=result.error, end_time=self.core.clock.now()
        )
        await self._ends.record(ended, result)
        try:
            self.saver.want(_LIFECYCLE_OF_END[result.end])
            await self._settle(self._settle_timeout)
            end = RunEnded(result.end, result.error, ended.usage, self.unsaved)
            self.core.publish(end, ended.run_id)
        except Exception:
            logger.exception("the end of a run is not told", extra={"run_id": ended.run_id})
        return self._after_run(ended, result)

    def _after_run(self, ended: Run, result: RunResult) -> Run | None:
        self._execution = None
        self._pause = ("", "")
        goes_on = result.end is RunEnd.COMPLETED and not self.work.is_closed
        planned = self.planned_run() if goes_on else None
        self._current = ""
        self._phase = RunPhase.ENDED
        if planned is not None:
            self.claim_run(planned)
        else:
            status = STATUS_OF_END[result.end]
            self.core.publish(StatusChanged(status, result.error, result.pause_reason))
        self._set_ended(ended.run_id)
        return planned

    async def _settle(self, timeout: timedelta) -> None:
        async with asyncio.TaskGroup() as waiting:
            waiting.create_task(self.pipeline.settle(timeout))
            waiting.create_task(self.saver.settle(timeout))

    async def settle_write(
        self, request_id: str, timeout: timedelta
    ) -> tuple[tuple[DisplayMessage, ...], int]:
        """Waits for one recorded display write; returns its rows and how many writes are unsaved."""
        unsaved = await self.pipeline.settle(timeout, {request_id})
        return self.news.take_rows(request_id), unsaved

    # --- views

    def view(self) -> AgentView:
        """Shows the agent as it is now."""
        state = self.core.state
        standing = self._ends.standing()
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
            error=standing.error if not self._current else None,
            pause_reason=standing.pause_reason,
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
            last_position=self.news.counters.last_position,
            last_change=self.news.counters.last_change,
        )


def new_run(core: AgentCore) -> Run:
    """Makes a run that has not begun."""
    return Run(run_id=new_id("run"), start_time=core.clock.now())
