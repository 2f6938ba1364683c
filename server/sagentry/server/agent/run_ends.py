"""The ends of runs: what a failed run left open is closed, and an end that the disk refuses is not lost."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sagentry.server.agent.core import AgentCore
from sagentry.server.agent.items import failure_notice, notice
from sagentry.server.agent.repair import RUN_FAILED, Repair, close_messages
from sagentry.server.agent.run import RunResult
from sagentry.server.domain.messages import MessageStatus
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd
from sagentry.server.domain.state import RunRecorded, StatusSet
from sagentry.server.domain.writes import DisplayWrite

logger = logging.getLogger(__name__)

STATUS_OF_END = {
    RunEnd.COMPLETED: AgentStatus.IDLE,
    RunEnd.CANCELLED: AgentStatus.CANCELLED,
    RunEnd.ERROR: AgentStatus.ERROR,
    RunEnd.PAUSED: AgentStatus.PAUSED,
}


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a run, as it is recorded."""

    run: Run
    status: StatusSet
    writes: tuple[DisplayWrite, ...]


class RunEnds:
    """Records the ends of one agent's runs.

    Args:
        core: The agent.
    """

    def __init__(self, core: AgentCore) -> None:
        """Begins with every end recorded."""
        self._core = core
        self._owed: list[_End] = []

    def standing(self) -> StatusSet:
        """Returns the status between runs."""
        state = self._core.state
        if self._owed:
            return self._owed[-1].status
        return StatusSet(state.status, state.error, state.pause_reason)

    def owed_run(self, run_id: str) -> Run | None:
        """Returns a run whose end could not be recorded yet."""
        return next((end.run for end in self._owed if end.run.run_id == run_id), None)

    def mended(self) -> Repair:
        """Closes what a failed run left open, as far as it is known on disk."""
        return close_messages(self._core.state, self._core.clock.now(), RUN_FAILED)

    async def record(self, run: Run, result: RunResult) -> None:
        """Records the end of a run. What keeps it off the disk makes it owed; raises nothing."""
        status = StatusSet(STATUS_OF_END[result.end], result.error, result.pause_reason)
        end = _End(run, status, tuple(self._notice(result)))
        try:
            await self._record(end, result)
        except Exception:
            # The disk is full: the end is announced all the same, and recorded when there is room.
            logger.exception("the end of a run is not recorded", extra={"run_id": run.run_id})
            self._owed.append(end)

    async def record_owed(self) -> None:
        """Records the ends that the disk refused before.

        Raises:
            SagentryError: It still does.
        """
        owed = list(self._owed)
        if owed:
            changes = [change for end in owed for change in (RunRecorded(end.run), end.status)]
            await self._core.record(changes, [write for end in owed for write in end.writes])
            del self._owed[: len(owed)]

    async def _record(self, end: _End, result: RunResult) -> None:
        mended = Repair()
        if result.end is RunEnd.ERROR:
            # A flush on its way belongs to the message that is to be closed.
            await self._core.ledger.settled()
            mended = self.mended()

        def tell() -> None:
            for body, run_id in mended.events:
                self._core.publish(body, run_id)

        await self._core.record(
            [*mended.changes, RunRecorded(end.run), end.status],
            [*mended.writes, *end.writes],
            then=tell,
        )

    def _notice(self, result: RunResult) -> list[DisplayWrite]:
        if result.end is RunEnd.CANCELLED:
            text = "Agent execution cancelled."
            return [self._core.notice_write(notice(text, MessageStatus.CANCELLED), text)]
        if result.error is not None and not result.is_shown:
            text = f"Sorry, I encountered an error: {result.error.message}"
            return [self._core.notice_write(failure_notice(text, result.error.reason), text)]
        return []
