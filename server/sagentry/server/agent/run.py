"""One run: model calls and their tools, until the model is done.

A run is never torn down from outside. `cancel` ends what it waits for, a model's answer or a tool, and the
run goes on to an end of its own: the partial text is kept, each open call gets a cancelled result.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace

from sagentry.server.agent.assembler import MessageAssembler
from sagentry.server.agent.core import AgentCore
from sagentry.server.agent.flusher import Flusher
from sagentry.server.agent.items import display_items
from sagentry.server.agent.tool_batch import ToolBatch, executing_info
from sagentry.server.domain.events import (
    MessageCompleted,
    MessageStarted,
    ModelAttemptFailed,
    ToolCallStep,
    ToolCallUpdated,
)
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import Message, MessageStatus, Role, TokenUsage, ToolCall
from sagentry.server.domain.models import (
    CONTENT_CHUNKS,
    AttemptFailed,
    EndChunk,
    ModelCallError,
    ModelRequest,
    StopKind,
)
from sagentry.server.domain.runs import Run, RunEnd, RunError
from sagentry.server.domain.state import Change, MessageFinished, RunRecorded
from sagentry.server.domain.text import repair
from sagentry.server.domain.writes import SaveMessage

logger = logging.getLogger(__name__)

TOO_MANY_TURNS = RunError(
    "TURN_LIMIT", "Max number of automated turns reached. You may continue if desired."
)

CHUNKS_IN_A_ROW = 32
"""So many chunks that are there already are taken before others on the event loop have their turn."""

CUT = ModelCallError("MODEL_STREAM_CUT", "The model's answer was cut off.", retryable=True)

FAULT = RunError("INTERNAL", "Something went wrong in the server. The cause is in its log.")


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        end: How.
        error: Why it failed.
        is_shown: Whether people see from a partial message that it failed, so that no row need say it.
        pause_reason: Why it was paused, in its caller's words.
    """

    end: RunEnd
    error: RunError | None = None
    is_shown: bool = False
    pause_reason: str = ""


class RunExecution:
    """Executes one run.

    Args:
        core: The agent.
        run: The run, as recorded.
    """

    def __init__(self, core: AgentCore, run: Run) -> None:
        """Begins before the first model call."""
        self.run = run
        self.growing: MessageAssembler | None = None
        self.batch: ToolBatch | None = None
        self._core = core
        self._streaming: asyncio.Task[ModelCallError | None] | None = None
        self._cancelled = False
        self._paused: str | None = None

    def pause(self, reason: str) -> None:
        """Ends the run before its next model call; what is under way finishes. Returns at once."""
        self._paused = reason

    def cancel(self) -> None:
        """Ends what the run waits for. Returns at once; `execute` returns when all is recorded."""
        self._cancelled = True
        if self._streaming is not None:
            self._streaming.cancel()
        if self.batch is not None:
            self.batch.cancel()

    async def execute(self) -> RunResult:
        """Runs to the end and says how it came."""
        # A run that was paused goes on with the turns that it has left.
        while self.run.turns < self._core.profile.max_turns:
            if self._cancelled:
                return RunResult(RunEnd.CANCELLED)
            if self._paused is not None:
                return RunResult(RunEnd.PAUSED, pause_reason=self._paused)
            self.run = replace(self.run, turns=self.run.turns + 1)
            message, failure = await self._model_turn()
            if failure is not None:
                error = RunError(failure.reason, repair(failure.message)[0], failure.retryable)
                shown = message is not None and bool(display_items(message))
                return RunResult(RunEnd.ERROR, error, is_shown=shown)
            if message is None or not runnable_calls(message):
                return RunResult(self._own_end())
            await self._run_tools(message)
        return RunResult(RunEnd.ERROR, TOO_MANY_TURNS)

    def _own_end(self) -> RunEnd:
        return RunEnd.CANCELLED if self._cancelled else RunEnd.COMPLETED

    async def _run_tools(self, message: Message) -> None:
        self._core.checkpoint()
        self.batch = ToolBatch(self._core, message, self.run.run_id)
        if self._cancelled:
            self.batch.cancel()
        await self.batch.run()
        self.batch = None
        self._core.checkpoint()

    async def _model_turn(self) -> tuple[Message | None, ModelCallError | None]:
        growing = MessageAssembler(
            new_id("msg"),
            self.run.run_id,
            self._core.clock.now(),
            label=self._core.profile.label,
            on_delta=self._core.log.publish_delta,
        )
        self.growing = growing
        failure = await self._stream(growing)
        if failure is None and growing.stop is None and not self._cancelled:
            failure = CUT
        message = self._message(growing, failure)
        if message is not None:
            await self._finish_message(message)
        elif growing.usage is not None:
            self.run = replace(self.run, usage=self.run.usage + growing.usage)
        self.growing = None
        return message, failure

    async def _stream(self, growing: MessageAssembler) -> ModelCallError | None:
        """Lets the message grow until the model is done, fails, or the run is cancelled."""
        flusher = Flusher(self._core.ledger, self._core.clock, growing)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._streaming = tasks.create_task(self._take_chunks(growing, flusher))
                await asyncio.wait({self._streaming})
        finally:
            # Also when the agent itself ends: its next life must not meet a late flush of this one.
            flusher.close()
        streamed, self._streaming = self._streaming, None
        return None if streamed.cancelled() else streamed.result()

    async def _take_chunks(
        self, growing: MessageAssembler, flusher: Flusher
    ) -> ModelCallError | None:
        """Takes what the model says to its end; returns why it failed, whoever's fault it is."""
        try:
            await self._take_all(growing, flusher)
        except ModelCallError as error:
            return error
        except Exception:
            # What there is of the message is kept, as when the model itself fails.
            logger.exception("a model call broke", extra={"run_id": self.run.run_id})
            return ModelCallError(FAULT.reason, FAULT.message)
        return None

    async def _take_all(self, growing: MessageAssembler, flusher: Flusher) -> None:
        request = ModelRequest(
            system_prompt=self._core.profile.system_prompt,
            messages=self._core.model_view.build(self._core.state.messages),
            tools=tuple(tool.spec for tool in self._core.profile.tools.values()),
            call_number=self.run.turns,
        )
        async with aclosing(self._core.profile.model.stream(request)) as chunks:
            count = 0
            async for chunk in chunks:
                if isinstance(chunk, AttemptFailed):
                    self._core.log.publish_debug(_attempt_failed(chunk))
                    continue
                if growing.is_empty and isinstance(chunk, CONTENT_CHUNKS):
                    self._begin(growing, flusher)
                growing.take(chunk)
                flusher.grown()
                if growing.is_full and growing.stop is None:
                    growing.take(EndChunk(StopKind.LENGTH))
                if growing.stop is not None or self._cancelled:
                    break
                count += 1
                if count % CHUNKS_IN_A_ROW == 0:
                    # A model that is never waited for would keep everybody else on this loop waiting.
                    await asyncio.sleep(0)

    def _begin(self, growing: MessageAssembler, flusher: Flusher) -> None:
        empty = growing.message(MessageStatus.STREAM_ERROR)
        self._core.publish(MessageStarted(empty.message_id, Role.ASSISTANT), self.run.run_id)
        # Not waited for: readers see the text as it comes, a crash takes at most one flush of it.
        flusher.begin(empty)

    def _message(self, growing: MessageAssembler, failure: ModelCallError | None) -> Message | None:
        if growing.is_empty:
            return None
        if failure is not None:
            return growing.message(MessageStatus.STREAM_ERROR)
        if growing.stop is None:
            return growing.message(MessageStatus.CANCELLED)
        return growing.message()

    async def _finish_message(self, message: Message) -> None:
        self.run = replace(
            self.run,
            usage=self.run.usage + (message.usage or TokenUsage()),
            final_message_id=message.message_id,
        )
        changes: list[Change] = [MessageFinished(message), RunRecorded(self.run)]
        await self._core.record(
            changes,
            [SaveMessage(message, display_items(message))],
            events=[*self._identified(message), MessageCompleted(message)],
            run_id=self.run.run_id,
            then=lambda: self._told(message),
        )

    def _told(self, message: Message) -> None:
        """Readers have the whole message: it grows no more, and its deltas are worth nothing."""
        self.growing = None
        self._core.log.finish_message(message.message_id)

    def _identified(self, message: Message) -> list[ToolCallUpdated]:
        return [
            ToolCallUpdated(
                message.message_id, call.call_id, ToolCallStep.IDENTIFIED, executing_info(call)
            )
            for call in runnable_calls(message)
            if call.name in self._core.profile.tools
        ]


def runnable_calls(message: Message) -> tuple[ToolCall, ...]:
    """Returns the calls that may run: those of a message that the model finished."""
    return message.tool_calls() if message.status is MessageStatus.COMPLETE else ()


def _attempt_failed(chunk: AttemptFailed) -> ModelAttemptFailed:
    error = RunError(chunk.error.reason, chunk.error.message, retryable=chunk.error.retryable)
    return ModelAttemptFailed(chunk.model, chunk.attempt, error)
