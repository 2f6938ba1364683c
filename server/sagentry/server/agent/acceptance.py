"""Accepting a message: once, in order, on disk before it is answered. Source: design §5.1."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from sagentry.server.agent.agent import Agent, new_run
from sagentry.server.agent.core import request_for
from sagentry.server.agent.items import display_items
from sagentry.server.agent.work import AgentStoppingError
from sagentry.server.domain import codec
from sagentry.server.domain.commands import (
    AddMessage,
    AddMessageReply,
    DisplayChoice,
    PauseRun,
    PauseRunReply,
    ResumeAgent,
    ResumeAgentReply,
    StartRun,
    StartRunReply,
)
from sagentry.server.domain.display import DisplayMessage
from sagentry.server.domain.events import MessageQueued
from sagentry.server.domain.ids import derived_message_id
from sagentry.server.domain.messages import Message, TextPart
from sagentry.server.domain.runs import Run
from sagentry.server.domain.state import (
    AnswerRecorded,
    Change,
    MessageHeld,
    RecordedAnswer,
    RunRecorded,
)
from sagentry.server.domain.text import repair
from sagentry.server.domain.writes import SaveMessage
from sagentry.server.errors import (
    ConflictError,
    InvalidStateError,
    LimitExceededError,
    PluginError,
)
from sagentry.server.ports import Accepted, PluginCall, Preprocessor, Rejected, WriteRequest

T = TypeVar("T")

_EPOCH = datetime.fromtimestamp(0, UTC)

PREPROCESSING_AT_ONCE = 8
MOST_WAITING = 64
"""Commands that may wait for one agent; one more is refused."""

SPARE_SHARE = 0.8
"""A message is refused when the state would pass this share of what its store takes."""


class MessageRejectedError(InvalidStateError):
    """The preprocessor rejected the message.

    Attributes:
        user_message: Its text for the user.
        violations: (field, description) of the places at fault.
    """

    def __init__(self, plugin: str, rejected: Rejected) -> None:
        """Keeps what the user may see."""
        super().__init__(
            "MESSAGE_REJECTED",
            f"the message was rejected: {rejected.reason}",
            plugin=plugin,
            rejection=rejected.reason,
        )
        self.user_message = rejected.user_message
        self.violations = rejected.violations


@dataclass(frozen=True, slots=True)
class _Pending(Generic[T]):
    fingerprint: str
    answer: asyncio.Future[T]


class Acceptance:
    """The door of one agent for messages and runs.

    Args:
        agent: The agent.
        preprocessor: Looks at messages first.
        settle_timeout: How long a reply waits for stores.
    """

    def __init__(
        self, agent: Agent, preprocessor: Preprocessor, *, settle_timeout: timedelta
    ) -> None:
        """Begins with nothing pending."""
        self._agent = agent
        self._preprocessor = preprocessor
        self._settle_timeout = settle_timeout
        self._messages: dict[str, _Pending[AddMessageReply]] = {}
        self._runs: dict[str, _Pending[StartRunReply]] = {}
        self._pauses: dict[str, _Pending[PauseRunReply]] = {}
        self._preprocessing = asyncio.Semaphore(PREPROCESSING_AT_ONCE)

    async def add_message(self, command: AddMessage) -> AddMessageReply:
        """Accepts a message, or answers as it was answered before."""
        fingerprint = _fingerprint(
            "AddMessage",
            _content(command.message),
            _display_text(command.display),
            str(command.hold),
        )
        recorded = self._recorded(command.request_id, fingerprint)
        if recorded is not None:
            return AddMessageReply(
                message_id=recorded.answer["message_id"],
                run_id=recorded.answer["run_id"],
                queued=recorded.answer["queued"] == "true",
                replayed=True,
            )
        reply, is_first = await self._once(
            self._messages, command.request_id, fingerprint, self._accept(command, fingerprint)
        )
        return reply if is_first else replace(reply, replayed=True)

    async def start_run(self, command: StartRun) -> StartRunReply:
        """Begins a run with what is there, or answers as it was answered before."""
        fingerprint = _fingerprint("StartRun")
        recorded = self._recorded(command.request_id, fingerprint)
        if recorded is not None:
            return StartRunReply(recorded.answer["run_id"], replayed=True)
        reply, is_first = await self._once(
            self._runs, command.request_id, fingerprint, self._start(command, fingerprint)
        )
        return reply if is_first else replace(reply, replayed=True)

    async def resume(self, command: ResumeAgent) -> ResumeAgentReply:
        """Goes on with a paused run, or answers as it was answered before."""
        fingerprint = _fingerprint("ResumeAgent")
        recorded = self._recorded(command.request_id, fingerprint)
        if recorded is not None:
            return ResumeAgentReply(recorded.answer["run_id"], replayed=True)
        reply, is_first = await self._once(
            self._runs, command.request_id, fingerprint, self._resume(command, fingerprint)
        )
        return ResumeAgentReply(reply.run_id, self._agent.unsaved, replayed=not is_first)

    async def pause_run(self, command: PauseRun) -> PauseRunReply:
        """Pauses a run, or answers as it was answered before."""
        fingerprint = _fingerprint("PauseRun", command.run_id, command.reason)
        if self._recorded(command.request_id, fingerprint) is not None:
            return PauseRunReply(already_ended=False, replayed=True)
        reply, is_first = await self._once(
            self._pauses, command.request_id, fingerprint, self._pause(command, fingerprint)
        )
        return reply if is_first else replace(reply, replayed=True)

    # --- once

    def _recorded(self, request_id: str, fingerprint: str) -> RecordedAnswer | None:
        recorded = self._agent.core.state.answers.get(request_id)
        if recorded is not None and recorded.fingerprint != fingerprint:
            raise _reused(request_id)
        return recorded

    async def _once(
        self,
        pending: dict[str, _Pending[T]],
        request_id: str,
        fingerprint: str,
        work: Coroutine[Any, Any, T],
    ) -> tuple[T, bool]:
        """Does the work of a request unless it is being done; says whether this call was the first."""
        waiting = (
            self._messages.get(request_id)
            or self._runs.get(request_id)
            or self._pauses.get(request_id)
        )
        if waiting is not None:
            work.close()
            if waiting.fingerprint != fingerprint:
                raise _reused(request_id)
            return await _answer(pending[request_id].answer), False
        actual = len(self._messages) + len(self._runs) + len(self._pauses)
        if actual >= MOST_WAITING:
            work.close()
            raise LimitExceededError(
                "AGENT_BUSY",
                "too many commands wait for this agent",
                limit=MOST_WAITING,
                actual=actual,
                agent_id=self._agent.core.key.agent_id,
            )
        answer = self._agent.work.own(work)
        pending[request_id] = _Pending(fingerprint, answer)
        answer.add_done_callback(lambda _: pending.pop(request_id, None))
        return await _answer(answer), True

    # --- acceptance

    async def _accept(self, command: AddMessage, fingerprint: str) -> AddMessageReply:
        core = self._agent.core
        message = replace(
            command.message,
            message_id=derived_message_id(
                core.key.scope, core.conversation.conversation_id, command.request_id
            ),
            create_time=core.clock.now(),
        )
        display, llm = await self._halves(command, message)
        if self._agent.is_stopping:
            raise AgentStoppingError
        self._refuse_oversize(llm)
        core.scope = command.scope
        # From here to the record there is no wait: the order of the records is the order of acceptance.
        run, begins = self._run_for(hold=command.hold)
        queued = not begins
        save = None
        if display is not None:
            save = request_for(SaveMessage(display, display_items(display)))
            self._agent.news.expect_rows(save.request_id)
        changes = self._changes(command, fingerprint, llm, run, queued=queued)
        try:
            await core.ledger.record(
                changes,
                [save] if save else [],
                (lambda: core.publish(MessageQueued(llm))) if queued else None,
            )
        except Exception:
            if begins:
                self._agent.release_run()
            if save:
                self._agent.news.take_rows(save.request_id)
            raise
        is_waiting = queued and not command.hold and not self._agent.current_run_id
        if is_waiting and run is not None and not self._agent.is_stopping:
            # The run that this message waited for ended while the record was written.
            self._agent.claim_run(run)
            begins = True
        core.checkpoint()
        if begins and run is not None:
            self._agent.begin_run(run, llm.message_id)
        rows, unsaved = await self._settle(save)
        return AddMessageReply(
            message_id=llm.message_id,
            run_id=run.run_id if run else "",
            queued=queued,
            rows=rows,
            unsaved=unsaved,
        )

    async def _start(self, command: StartRun, fingerprint: str) -> StartRunReply:
        if self._agent.is_stopping:
            raise AgentStoppingError
        self._agent.core.scope = command.scope
        if self._agent.paused_run() is not None:
            return await self._go_on(command.request_id, fingerprint)
        run, begins = self._run_for(hold=False)
        if run is None or not begins:
            raise InvalidStateError(
                "INVALID_STATE", "a run is under way", status="running", agent_id=command.agent_id
            )
        return await self._begin(run, command.request_id, fingerprint)

    async def _resume(self, command: ResumeAgent, fingerprint: str) -> StartRunReply:
        if self._agent.is_stopping:
            raise AgentStoppingError
        self._agent.core.scope = command.scope
        return await self._go_on(command.request_id, fingerprint)

    async def _go_on(self, request_id: str, fingerprint: str) -> StartRunReply:
        """Goes on with the paused run."""
        agent = self._agent
        paused = agent.paused_run()
        if paused is None:
            raise InvalidStateError(
                "INVALID_STATE",
                "the agent is not paused",
                status=agent.status.value,
                allowed="paused",
                agent_id=agent.core.key.agent_id,
            )
        run = replace(paused, end=None, error=None, end_time=None, begun=False)
        agent.claim_run(run)
        return await self._begin(run, request_id, fingerprint)

    async def _begin(self, run: Run, request_id: str, fingerprint: str) -> StartRunReply:
        """Records and begins a run that is claimed."""
        answer = RecordedAnswer(request_id, fingerprint, {"run_id": run.run_id})
        try:
            await self._agent.core.ledger.record([AnswerRecorded(answer), RunRecorded(run)])
        except Exception:
            self._agent.release_run()
            raise
        self._agent.begin_run(run)
        return StartRunReply(run.run_id)

    async def _pause(self, command: PauseRun, fingerprint: str) -> PauseRunReply:
        agent = self._agent
        current = agent.current_run_id
        if not current or command.run_id not in ("", current):
            return PauseRunReply(already_ended=True)
        await agent.core.ledger.record(
            [AnswerRecorded(RecordedAnswer(command.request_id, fingerprint, {"run_id": current}))]
        )
        if agent.current_run_id == current:
            agent.pause_run(command.reason)
        return PauseRunReply(already_ended=False)

    async def _halves(
        self, command: AddMessage, message: Message
    ) -> tuple[Message | None, Message]:
        """Returns what people see (None: nothing) and what the model reads."""
        match command.display:
            case DisplayChoice.SAME:
                return message, message
            case DisplayChoice.NOTHING:
                return None, message
            case Message() as shown:
                return _like(shown, message), message
            case None:
                pass
        outcome = await self._preprocess(command, message)
        if isinstance(outcome, Rejected):
            raise MessageRejectedError(self._preprocessor.plugin, outcome)
        return self._accepted_halves(outcome, message)

    async def _preprocess(self, command: AddMessage, message: Message) -> Accepted | Rejected:
        """Asks the preprocessor, in the time that the caller has left when it is its turn."""
        core = self._agent.core
        came = core.clock.monotonic()
        with self._agent.work.droppable():
            async with self._preprocessing:
                waited = timedelta(seconds=core.clock.monotonic() - came)
                left = None if command.timeout is None else command.timeout - waited
                if left is not None and left <= timedelta(0):
                    raise self._too_late(waited, command.timeout or left)
                options = core.state.options
                return await self._preprocessor.preprocess(
                    PluginCall(
                        scope=command.scope,
                        conversation_id=core.conversation.conversation_id,
                        agent_id=core.key.agent_id,
                        request_id=command.request_id,
                        timeout=left,
                    ),
                    message,
                    tool_context=options.tool_context if options else None,
                    messages=core.state.messages,
                )

    def _too_late(self, waited: timedelta, budget: timedelta) -> PluginError:
        return PluginError(
            "PLUGIN_TIMEOUT",
            "the caller's time was over before it was the message's turn",
            plugin=self._preprocessor.plugin,
            method="PreprocessMessage",
            elapsed=waited,
            budget=budget,
        )

    @staticmethod
    def _accepted_halves(outcome: Accepted, message: Message) -> tuple[Message | None, Message]:
        display = _like(outcome.display, message) if outcome.display is not None else None
        return display, _like(outcome.llm, message)

    def _run_for(self, *, hold: bool) -> tuple[Run | None, bool]:
        """Returns the run that will read the message, and whether it begins now.

        While a run is under way the message is promised to the next one, so that its sender can wait for
        the run that answers it.
        """
        agent = self._agent
        planned = agent.planned_run()
        if hold:
            return planned, False
        run = planned or agent.promised or new_run(agent.core)
        if agent.current_run_id:
            agent.promised = run
            return run, False
        agent.claim_run(run)
        return run, True

    def _changes(
        self,
        command: AddMessage,
        fingerprint: str,
        llm: Message,
        run: Run | None,
        *,
        queued: bool,
    ) -> list[Change]:
        answer = {
            "message_id": llm.message_id,
            "run_id": run.run_id if run else "",
            "queued": "true" if queued else "false",
        }
        changes: list[Change] = [
            MessageHeld(llm),
            AnswerRecorded(RecordedAnswer(command.request_id, fingerprint, answer)),
        ]
        if run is not None:
            changes.append(RunRecorded(run))
        return changes

    async def _settle(self, save: WriteRequest | None) -> tuple[tuple[DisplayMessage, ...], int]:
        if save is None:
            return (), 0
        return await self._agent.settle_write(save.request_id, self._settle_timeout)

    def _refuse_oversize(self, llm: Message) -> None:
        """Refuses a message that would take the state over what its store takes."""
        limit = int(self._agent.saver.max_state_bytes * SPARE_SHARE)
        added = len(codec.to_json(llm, Message))
        size = self._agent.saver.state_size + added
        if size > limit:
            # Patches count twice what they replace: only near the limit is it worth to measure.
            size = self._agent.saver.measured_size() + added
        if size > limit:
            raise LimitExceededError(
                "STATE_TOO_LARGE",
                "the conversation would outgrow its store; begin a new one",
                limit=limit,
                actual=size,
            )


def _fingerprint(*parts: str) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        hashed.update(len(raw).to_bytes(8, "big") + raw)
    return hashed.hexdigest()


def _content(message: Message) -> str:
    """Returns what a client can choose of a message, as text to compare."""
    return codec.to_json(replace(message, message_id="", create_time=_EPOCH), Message)


def _display_text(display: Message | DisplayChoice | None) -> str:
    match display:
        case None:
            return ""
        case DisplayChoice():
            return display.value
        case Message():
            return _content(display)


def _like(half: Message, message: Message) -> Message:
    """Gives a half of a message the identity of the whole, and text that can be encoded."""
    parts = tuple(
        replace(part, text=repair(part.text)[0]) if isinstance(part, TextPart) else part
        for part in half.parts
    )
    return replace(
        half,
        message_id=message.message_id,
        create_time=message.create_time,
        run_id="",
        parts=parts,
    )


def _reused(request_id: str) -> ConflictError:
    return ConflictError(
        "REQUEST_ID_REUSED",
        "the request_id was used with other content",
        request_id=request_id,
    )


async def _answer(answer: asyncio.Future[T]) -> T:
    """Waits for an answer without owning it: a caller that goes away does not cancel it."""
    await asyncio.wait({answer})
    return answer.result()
