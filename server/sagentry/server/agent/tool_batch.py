"""The tool calls of one model message: run side by side, each recorded as it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sagentry.server.agent.core import AgentCore
from sagentry.server.agent.items import display_items
from sagentry.server.domain.display import ToolInfo, ToolStatus
from sagentry.server.domain.events import (
    MessageCompleted,
    ToolCallStep,
    ToolCallUpdated,
)
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import Message, Role, TextPart, ToolCall, ToolResult
from sagentry.server.domain.state import (
    CallStarted,
    Change,
    MessageBegun,
    MessageFinished,
    PartOpened,
)
from sagentry.server.domain.text import repair
from sagentry.server.domain.tools import ToolFailure, ToolOutcome
from sagentry.server.domain.writes import DisplayWrite, SaveMessage, UpdateToolStatus
from sagentry.server.errors import SagentryError
from sagentry.server.model_ports import Tool

logger = logging.getLogger(__name__)

CANCELLED = ToolOutcome("The call was cancelled before it was done.", ToolFailure.CANCELLED)

_STEP_OF_STATUS = {
    ToolStatus.EXECUTING: ToolCallStep.EXECUTING,
    ToolStatus.COMPLETED: ToolCallStep.COMPLETED,
    ToolStatus.FAILED: ToolCallStep.FAILED,
    ToolStatus.CANCELLED: ToolCallStep.CANCELLED,
}


class ToolBatch:
    """Runs the calls of one assistant message.

    Args:
        core: The agent.
        message: The assistant message.
        run_id: The run.
    """

    def __init__(self, core: AgentCore, message: Message, run_id: str) -> None:
        """Begins with nothing done."""
        self._core = core
        self._message = message
        self._run_id = run_id
        self._calls = message.tool_calls()
        self._results: dict[str, ToolResult] = {}
        self._untold: list[tuple[ToolCall, ToolStatus, ToolInfo]] = []
        self._result_message = Message(
            message_id=new_id("msg"),
            role=Role.TOOL,
            parts=(),
            create_time=core.clock.now(),
            run_id=run_id,
        )
        self._running: set[asyncio.Task[ToolOutcome]] = set()
        self._is_cancelled = False

    async def run(self) -> None:
        """Runs all calls; returns when each has its result and the tool message is whole.

        After `cancel` no call begins, and each that has no result gets a cancelled one. A result that the
        disk refuses ends no other call: it is recorded with the whole message.

        Raises:
            SagentryError: The message could not be recorded; no call is under way.
        """
        known = [] if self._is_cancelled else self._known_calls()
        await self._begin(known)
        async with asyncio.TaskGroup() as tasks:
            for call in known:
                tasks.create_task(self._run_call(call, tasks))
        for call in self._calls:
            if call.call_id not in self._results:
                await self._finish_call(call, await self._unrun_outcome(call))
        await self._finish()

    def cancel(self) -> None:
        """Cancels the calls that run. Returns at once; `run` goes on to its ordinary end."""
        self._is_cancelled = True
        for task in self._running:
            task.cancel()

    def in_flight(self) -> tuple[ToolCallUpdated, ...]:
        """Shows the calls that have begun and have no result."""
        return tuple(
            ToolCallUpdated(
                self._message.message_id,
                call.call_id,
                ToolCallStep.EXECUTING,
                executing_info(call),
            )
            for call in self._known_calls()
            if call.call_id not in self._results
        )

    def _known_calls(self) -> list[ToolCall]:
        return [call for call in self._calls if call.name in self._core.profile.tools]

    async def _unrun_outcome(self, call: ToolCall) -> ToolOutcome:
        tools = self._core.profile.tools
        if call.name in tools:
            return CANCELLED
        return await self._outcome(call, None)

    async def _outcome(self, call: ToolCall, tool: Tool | None) -> ToolOutcome:
        """Runs a call; whatever the executor does, it has an outcome of text that can be encoded."""
        context = self._core.tool_context(call.call_id)
        try:
            outcome = await self._core.executor.run(
                call, tool, context, known=self._core.profile.tools
            )
            return ToolOutcome(repair(outcome.text)[0], outcome.reason)
        except Exception:
            logger.exception("a tool call broke", extra={"call_id": call.call_id})
            return ToolOutcome(f"{call.name} failed inside the server.", ToolFailure.TOOL_FAULT)

    async def _begin(self, known: Sequence[ToolCall]) -> None:
        changes: list[Change] = [MessageBegun(self._result_message)]
        changes.extend(CallStarted(call.call_id) for call in known)
        await self._core.record(
            changes,
            [self._update(call, ToolStatus.EXECUTING, executing_info(call)) for call in known],
            events=[self._step(call, ToolStatus.EXECUTING, executing_info(call)) for call in known],
            run_id=self._run_id,
        )

    async def _run_call(self, call: ToolCall, tasks: asyncio.TaskGroup) -> None:
        tool = self._core.profile.tools[call.name]
        # Only the tool itself can be cancelled: recording its outcome always runs to its end.
        running = tasks.create_task(self._outcome(call, tool))
        self._running.add(running)
        if self._is_cancelled:
            running.cancel()
        await asyncio.wait({running})
        self._running.discard(running)
        await self._finish_call(call, CANCELLED if running.cancelled() else running.result())

    async def _finish_call(self, call: ToolCall, outcome: ToolOutcome) -> None:
        status = status_of(outcome)
        result = ToolResult(
            call_id=call.call_id,
            name=call.name,
            parts=(TextPart(outcome.text),),
            is_error=outcome.is_error,
        )
        self._results[call.call_id] = result
        info = outcome_info(call, outcome, status)
        try:
            await self._core.record(
                [PartOpened(self._result_message.message_id, result)],
                [self._update(call, status, info)],
                events=[self._step(call, status, info)],
                run_id=self._run_id,
            )
        except SagentryError as error:
            logger.warning("a result is not recorded yet", extra={"reason": error.reason})
            self._untold.append((call, status, info))

    async def _finish(self) -> None:
        message = Message(
            message_id=self._result_message.message_id,
            role=Role.TOOL,
            parts=tuple(self._results[call.call_id] for call in self._calls),
            create_time=self._result_message.create_time,
            run_id=self._run_id,
        )
        await self._core.record(
            [MessageFinished(message)],
            [
                *(self._update(*untold) for untold in self._untold),
                SaveMessage(message, display_items(message)),
            ],
            events=[
                *(self._step(*untold) for untold in self._untold),
                MessageCompleted(message),
            ],
            run_id=self._run_id,
        )

    def _update(self, call: ToolCall, status: ToolStatus, info: ToolInfo) -> DisplayWrite:
        return UpdateToolStatus(self._message.message_id, call.call_id, status, info)

    def _step(self, call: ToolCall, status: ToolStatus, info: ToolInfo) -> ToolCallUpdated:
        return ToolCallUpdated(
            self._message.message_id, call.call_id, _STEP_OF_STATUS[status], info
        )


def status_of(outcome: ToolOutcome) -> ToolStatus:
    """Returns the status of a call that ended so."""
    if outcome.reason is ToolFailure.CANCELLED:
        return ToolStatus.CANCELLED
    return ToolStatus.FAILED if outcome.is_error else ToolStatus.COMPLETED


def executing_info(call: ToolCall) -> ToolInfo:
    """Says what is known of a call that begins."""
    return ToolInfo(
        name=call.name, display_text=call.display_text, arguments_json=call.arguments_json
    )


def outcome_info(call: ToolCall, outcome: ToolOutcome, status: ToolStatus) -> ToolInfo:
    """Says what is known of a call that ended with `status`."""
    if status is ToolStatus.COMPLETED:
        return ToolInfo(name=call.name, result=outcome.text)
    if status is ToolStatus.FAILED:
        return ToolInfo(name=call.name, error=outcome.text)
    return ToolInfo(name=call.name)
