"""Any command in any state of an agent, with stores and a disk that fail, and crashes in between.

What must hold whatever happens: each run ends once, each accepted message reaches the model once and in
order, the model never sees a history that a strict provider refuses, no call goes on after its run, a
repeated request gets the same answer, and in the end stores and state say the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sagentry.server.agent.agent import Agent
from sagentry.server.agent.items import display_items
from sagentry.server.domain.commands import (
    AddMessage,
    AddMessageReply,
    CancelRun,
    PauseRun,
    ResumeAgent,
    StartAgent,
    StartRun,
    StopAgent,
)
from sagentry.server.domain.events import RunEnded
from sagentry.server.domain.messages import Role
from sagentry.server.domain.models import (
    EndChunk,
    ModelCallError,
    ModelChunk,
    ModelRequest,
    StopKind,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
)
from sagentry.server.domain.runs import RunEnd
from sagentry.server.domain.scope import AgentKey
from sagentry.server.domain.state import AgentState
from sagentry.server.domain.writes import SaveMessage
from sagentry.server.errors import PluginError, SagentryError
from sagentry.server.model.history import history_problem
from tests.support.agent_world import SCOPE, Answer, FakeModel, FakeTool, World, ask, say
from tests.support.memory_ports import Gate

T = TypeVar("T")

KEY = AgentKey(SCOPE.key, "a")

STEPS = 100
"""Rounds of the event loop after which whatever can happen without help has happened."""


def failure(reason: str) -> PluginError:
    return PluginError(
        reason,
        "no",
        plugin="store",
        method="any",
        elapsed=timedelta(0),
        budget=timedelta(seconds=3),
    )


AWAY = failure("PLUGIN_UNAVAILABLE")
FAILURES: dict[str, Exception | None] = {
    "works": None,
    "away": AWAY,
    "refuses": failure("PLUGIN_REFUSED"),
    "faulty": failure("PLUGIN_FAULT"),
    "broken": ValueError("bug"),
}


KINDS = st.sampled_from(
    ["tools", "text", "long", "thinking", "length", "unknown", "error", "bug", "nothing"]
)


class WatchedModel(FakeModel):
    """Notes every history that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.seen: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        problem = history_problem(request.messages)
        if problem is not None:
            self.problems.append(problem)
        delivered = user_words(request)
        if delivered[: len(self.seen)] != self.seen:
            self.problems.append(f"{delivered} does not go on from {self.seen}")
        self.seen = delivered
        async for chunk in super().stream(request):
            yield chunk


def user_words(request: ModelRequest) -> list[str]:
    texts = [m.text() for m in request.messages if m.role is Role.USER]
    return [word for text in texts for word in text.split(";") if word.startswith("word")]


class AgentMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = WatchedModel()
        self.model_gate = Gate()
        self.tools = {"one": FakeTool("one"), "two": FakeTool("two")}
        self.callers: list[asyncio.Task[Any]] = []
        self.sent: dict[str, AddMessage] = {}
        self.accepted: dict[str, tuple[str, str, bool]] = {}
        self.problems: list[str] = []
        self.pace = 0
        self.world: World

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def call(
        self, work: Coroutine[Any, Any, T], done: Callable[[asyncio.Task[T]], None] | None = None
    ) -> None:
        """Calls the server as a client does, and goes on without waiting."""
        caller = self.loop.create_task(work)
        self.callers.append(caller)
        caller.add_done_callback(self._answered)
        if done is not None:
            caller.add_done_callback(done)

    def _answered(self, caller: asyncio.Task[Any]) -> None:
        error = None if caller.cancelled() else caller.exception()
        if error is not None and not isinstance(error, SagentryError):
            self.problems.append(f"a call failed with {error!r}")

    # --- what happens

    @initialize(
        settle=st.sampled_from([0, 10]),
        are_tools_slow=st.booleans(),
        pace=st.sampled_from([0, 1, 3, 6, 12, STEPS]),
        naps=st.sampled_from([0, 60]),
    )
    def begin(self, settle: int, are_tools_slow: bool, pace: int, naps: int) -> None:  # noqa: FBT001
        self.pace = pace
        if are_tools_slow:
            self.tools["one"].gate.close()

        async def enter() -> None:
            self.world = World(
                model=self.model,
                tools=self.tools,
                settle_timeout=timedelta(seconds=settle),
                max_turns=4,
                inactivity_timeout=timedelta(seconds=naps),
            )
            await self.world.__aenter__()

        self.run(enter())

    @rule()
    def let_everything_happen(self) -> None:
        self.run(rounds(STEPS))

    @invariant()
    def time_goes_on(self) -> None:
        self.run(rounds(self.pace))

    @rule(hold=st.booleans())
    def add_message(self, hold: bool) -> None:  # noqa: FBT001 - drawn by name
        number = len(self.sent)
        message = self.world.message(f"word{number};", f"r{number}").message
        self.sent[f"r{number}"] = AddMessage(SCOPE, "a", f"r{number}", message, hold=hold)
        self._add(f"r{number}")

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        self._add(data.draw(st.sampled_from(sorted(self.sent))))

    def _add(self, request_id: str) -> None:
        self.call(
            self.world.registry.add_message(self.sent[request_id]),
            lambda done: self._added(request_id, done),
        )

    def _added(self, request_id: str, done: asyncio.Task[AddMessageReply]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        reply = done.result()
        answer = (reply.message_id, reply.run_id, reply.queued)
        if self.accepted.setdefault(request_id, answer) != answer:
            self.problems.append(f"{request_id} was answered in two ways")

    @rule()
    def start_run(self) -> None:
        number = len(self.callers)
        self.call(self.world.registry.start_run(StartRun(SCOPE, "a", f"s{number}")))

    @rule()
    def cancel_run(self) -> None:
        self.call(self.world.registry.cancel_run(CancelRun(SCOPE, "a")))

    @rule()
    def pause_run(self) -> None:
        number = len(self.callers)
        self.call(self.world.registry.pause_run(PauseRun(SCOPE, "a", f"p{number}")))

    @rule()
    def resume(self) -> None:
        number = len(self.callers)
        self.call(self.world.registry.resume_agent(ResumeAgent(SCOPE, "a", f"g{number}")))

    @rule(finish_run=st.booleans())
    def stop(self, finish_run: bool) -> None:  # noqa: FBT001 - drawn by name
        self.call(self.world.registry.stop_agent(StopAgent(SCOPE, "a", finish_run=finish_run)))

    @rule()
    def wake(self) -> None:
        self.call(self.world.registry.start_agent(StartAgent(SCOPE, "a")))

    @precondition(lambda self: any(not caller.done() for caller in self.callers))
    @rule(data=st.data())
    def a_caller_goes_away(self, data: st.DataObject) -> None:
        waiting = [caller for caller in self.callers if not caller.done()]
        waiting[data.draw(st.integers(0, len(waiting) - 1))].cancel()

    @rule(kind=KINDS, is_held=st.booleans())
    def plan_answer(self, kind: str, is_held: bool) -> None:  # noqa: FBT001 - drawn by name
        answer = list(answers()[kind])
        if is_held:
            answer.insert(len(answer) // 2, self.model_gate)
        self.model.answers.append(answer)

    @rule(kind=KINDS, is_held=st.booleans())
    def ask(self, kind: str, is_held: bool) -> None:  # noqa: FBT001 - drawn by name
        self.plan_answer(kind, is_held)
        self.add_message(hold=False)

    @precondition(lambda self: self.tools["one"].running or self.tools["two"].running)
    @rule()
    def crash_in_mid_call(self) -> None:
        self.crash()

    @rule(is_open=st.booleans(), which=st.sampled_from(["model", "one", "two", "rows", "states"]))
    def move_gate(self, is_open: bool, which: str) -> None:  # noqa: FBT001 - drawn by name
        gate = {
            "model": self.model_gate,
            "one": self.tools["one"].gate,
            "two": self.tools["two"].gate,
            "rows": self.world.display.gate,
            "states": self.world.states.gate,
        }[which]
        if is_open:
            gate.open()
        else:
            gate.close()

    @rule(how=st.sampled_from(sorted(FAILURES)), which=st.sampled_from(["rows", "states"]))
    def let_store_fail(self, how: str, which: str) -> None:
        store = self.world.display if which == "rows" else self.world.states
        store.failure = FAILURES[how]

    @rule(loses=st.booleans(), which=st.sampled_from(["rows", "states"]))
    def let_store_lose_answers(self, loses: bool, which: str) -> None:  # noqa: FBT001
        store = self.world.display if which == "rows" else self.world.states
        store.loses_answers = AWAY if loses else None

    @rule(
        how=st.sampled_from(["hold", "release", "full", "room", "full for long records", "one"]),
        word=st.sampled_from(
            ["end_time", "MessageFinished", "MessageBegun", "ToolResult", "begun"]
        ),
    )
    def let_disk(self, how: str, word: str) -> None:
        journal = self.world.journal
        match how:
            case "hold":
                journal.hold()
            case "release":
                self.run(call(journal.release))
            case "full":
                journal.refuses = lambda _records: True
            case "room":
                journal.refuses = lambda _records: False
            case "one":
                journal.refuse_once(word)
            case _:
                journal.refuses = lambda records: any(len(r.payload) > 600 for r in records)

    @rule(seconds=st.sampled_from([0.25, 5.0, 61.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(call(lambda: self.world.clock.advance(seconds)))

    @rule()
    def crash(self) -> None:
        async def die() -> None:
            for caller in self.callers:
                caller.cancel()
            self.world.journal.crash()
            self.world = await self.world.crash_and_restart()

        self.run(die())

    # --- what must hold

    @invariant()
    def nothing_was_wrong(self) -> None:
        assert not self.problems
        assert not self.model.problems

    @invariant()
    def every_run_ends_once(self) -> None:
        # A paused run may go on, and ends then.
        ends = Counter(run_id for run_id, end in self._ends() if end is not RunEnd.PAUSED)
        for run_id, number in ends.items():
            # An end that the disk refused is told all the same. When the server dies before there is
            # room for it, the next life knows of none and tells another: lost, or that of a new try.
            again = self._was_refused(run_id)
            assert number <= 1 + again, [end for one, end in self._ends() if one == run_id]

    def _ends(self) -> list[tuple[str, RunEnd]]:
        events = self.world.trace.events if hasattr(self, "world") else []
        return [(e.run_id, e.body.end) for e in events if isinstance(e.body, RunEnded)]

    def _was_refused(self, run_id: str) -> bool:
        refused = self.world.journal.refused_payloads
        return any(run_id in payload and "end_time" in payload for payload in refused)

    @invariant()
    def no_call_outlives_its_run(self) -> None:
        agent = self._agent()
        if agent is not None and not agent.current_run_id:
            assert [tool.running for tool in self.tools.values()] == [0, 0]

    def _agent(self) -> Agent | None:
        return self.world.registry.live_agent(KEY) if hasattr(self, "world") else None

    # --- the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self._everything_comes_to_rest()
        finally:
            self.run(end_all())
            self.loop.close()

    def _everything_comes_to_rest(self) -> None:
        world = self.world
        self.model.answers.clear()
        world.journal.refuses = lambda _records: False
        for store in (world.display, world.states):
            store.failure = store.loses_answers = None
            store.gate.open()
        for gate in (self.model_gate, *(tool.gate for tool in self.tools.values())):
            gate.open()
        self.run(self._rest())
        self.nothing_was_wrong()
        self.every_run_ends_once()
        self._nothing_is_lost()
        self._rows_are_those_of(self.rested)

    async def _rest(self) -> None:
        async with asyncio.timeout(20):
            self.world.journal.release()
            for caller in self.callers:
                await asyncio.wait({caller})
            await self._deliver("first")
            # What was held behind a run that was cancelled goes with the next.
            await self._deliver("last")
            registry = self.world.registry
            await registry.stop_agent(StopAgent(SCOPE, "a", finish_run=True))
            await registry.start_agent(StartAgent(SCOPE, "a"))
            self.rested = self.world.state()
            await self.world.__aexit__()

    async def _deliver(self, request_id: str) -> None:
        registry = self.world.registry
        while True:
            await registry.start_agent(StartAgent(SCOPE, "a"))
            agent = self.world.agent()
            if agent.current_run_id:
                await agent.wait_for_end(agent.current_run_id)
                continue
            reply = await registry.start_run(StartRun(SCOPE, "a", request_id))
            await self.world.agent().wait_for_end(reply.run_id)
            return

    def _nothing_is_lost(self) -> None:
        state = self.rested
        words = [m.text() for m in state.messages if m.role is Role.USER]
        assert len(words) == len(set(words))
        assert {self.sent[request_id].message.text() for request_id in self.accepted} <= set(words)
        assert self.model.seen == [word.rstrip(";") for word in words]
        assert not state.held
        assert not state.growing
        assert not state.started_calls
        assert all(run.end is not None for run in state.runs.values())
        assert self.world.journal.entries == {}

    def _rows_are_those_of(self, state: AgentState) -> None:
        display = self.world.display
        rows = display.rows.get("a", {})
        set_aside = "".join(self.world.journal.set_aside_payloads)
        for message in state.messages:
            items = display_items(message)
            if message.message_id in set_aside or not items:
                continue
            assert rows[message.message_id] == SaveMessage(message, items)
            for result in message.tool_results():
                if result.call_id not in set_aside:
                    is_fine = display.statuses[result.call_id] == "completed"
                    assert is_fine is not result.is_error
        shown = {row.message.message_id for row in rows.values() if isinstance(row, SaveMessage)}
        assert shown <= {message.message_id for message in state.messages}


def answers() -> dict[str, Answer]:
    pieces = [TextChunk("a" * 3000), TextChunk("b" * 3000)]
    return {
        "text": say("fine"),
        "long": [*pieces, EndChunk(StopKind.STOP)],
        "thinking": [ThinkingChunk("hm"), *say("so")],
        "length": [
            TextChunk("cut"),
            ToolCallChunk(0, "p", "one", '{"a'),
            EndChunk(StopKind.LENGTH),
        ],
        "tools": ask("one", "two", text="look"),
        "unknown": ask("one", "nine"),
        "error": [TextChunk("half"), ModelCallError("MODEL_OVERLOADED", "no", retryable=True)],
        "bug": [TextChunk("half"), RuntimeError("bug")],
        "nothing": [EndChunk(StopKind.STOP)],
    }


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def call(function: Callable[[], None]) -> None:
    function()


async def end_all() -> None:
    """Leaves no task behind, whatever went wrong."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=5)


def test_any_command_in_any_state() -> None:
    run_state_machine_as_test(AgentMachine, settings=settings(stateful_step_count=40))
