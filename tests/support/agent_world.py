"""A world for agents in memory, and the registry that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

from sagentry.server.agent.absent import NoPreprocessor
from sagentry.server.agent.agent import Agent
from sagentry.server.agent.core import Profile
from sagentry.server.agent.recovery import AgentServices
from sagentry.server.agent.registry import AgentRegistry
from sagentry.server.agent.streams import Streams
from sagentry.server.domain.commands import AddMessage
from sagentry.server.domain.events import (
    DebugBody,
    Delta,
    Event,
    EventBody,
    EventKind,
    LagPolicy,
    Snapshot,
    StreamEndReason,
)
from sagentry.server.domain.messages import Message, Role, TextPart
from sagentry.server.domain.models import (
    EndChunk,
    ModelChunk,
    ModelRequest,
    StopKind,
    TextChunk,
    ToolCallChunk,
    ToolSpec,
)
from sagentry.server.domain.scope import AgentKey, Scope, ScopeKey, ScopeKind
from sagentry.server.domain.state import AgentState
from sagentry.server.errors import InvalidInputError
from sagentry.server.model_ports import Tool, ToolContext, ToolExecutor
from sagentry.server.ports import Preprocessor
from sagentry.server.stream_ports import EventSource
from sagentry.server.tools.runner import ToolRunner
from tests.support.memory_ports import (
    START,
    FakeClock,
    Gate,
    MemoryDisplayStore,
    MemoryJournal,
    MemoryStateStore,
    Trace,
)

SCOPE = Scope(ScopeKey(ScopeKind.SCOPED, "acme"))


class SilentStream:
    """A stream of which only counts that it is open."""

    def __init__(self, log: TraceLog) -> None:
        self._log: TraceLog | None = log
        log.readers += 1

    async def next_batch(self) -> bytes | None:
        return None

    def close(self) -> None:
        if self._log is not None:
            self._log.readers -= 1
            self._log = None


class TraceLog:
    """An event log that keeps everything and adds a word per event to the trace."""

    def __init__(self, agent_id: str, conversation_id: str, trace: Trace) -> None:
        self.readers = 0
        self.events: list[Event] = []
        self.deltas: list[Delta] = []
        self.debug: list[DebugBody] = []
        self._agent_id = agent_id
        self.conversation_id = conversation_id
        self._trace = trace
        self.breaks_on: type[EventBody] | None = None
        self.has_ended = asyncio.Event()

    def publish(self, body: EventBody, *, run_id: str, owner_epoch: int) -> int:
        if self.breaks_on is not None and isinstance(body, self.breaks_on):
            raise ValueError(describe(body))
        sequence = len(self.events) + 1
        event = Event(
            sequence, self._agent_id, self.conversation_id, run_id, owner_epoch, START, body
        )
        self.events.append(event)
        self._trace.events.append(event)
        self._trace.add(f"E {describe(body)}")
        return sequence

    def begin(self, snapshot: Callable[[], Snapshot]) -> None:
        snapshot()
        self.events.clear()

    def end(self, reason: StreamEndReason, *, reconnect: bool) -> None:
        self.ended = (reason, reconnect)
        self.has_ended.set()

    def subscribe(
        self,
        cursor: str | None,
        kinds: Iterable[EventKind] = (),
        *,
        debug: bool = False,
        policy: LagPolicy = LagPolicy.CONFLATE,
        snapshot: Callable[[], Snapshot],
    ) -> EventSource:
        del cursor, kinds, debug, policy, snapshot
        return SilentStream(self)  # streams are tested with the real log

    def publish_delta(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def publish_debug(self, body: DebugBody) -> None:
        self.debug.append(body)

    def finish_message(self, message_id: str) -> None:
        del message_id

    def bodies(self, kind: type[EventBody]) -> list[EventBody]:
        return [event.body for event in self.events if isinstance(event.body, kind)]


def describe(body: EventBody) -> str:
    """Names an event in a few words."""
    name = type(body).__name__
    for attribute in ("status", "end", "step"):
        value = getattr(body, attribute, None)
        if value is not None:
            return f"{name} {value.value}"
    message = getattr(body, "message", None)
    if isinstance(message, Message):
        return f"{name} {message.role.value}"
    return name


Answer = Sequence[ModelChunk | Exception | Gate]


class FakeModel:
    """Answers calls in order from a list; a gate in an answer holds it, an exception ends it."""

    name = "fake"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else say("ok")
        for step in answer:
            match step:
                case Gate():
                    await step.passing()
                case Exception():
                    raise step
                case _:
                    yield step


def say(*texts: str) -> Answer:
    """An answer of text."""
    return [*(TextChunk(text) for text in texts), EndChunk(StopKind.STOP)]


def ask(*names: str, text: str = "", arguments: str = "{}") -> Answer:
    """An answer that calls tools."""
    spoken = [TextChunk(text)] if text else []
    calls = [ToolCallChunk(index, f"p{index}", name, arguments) for index, name in enumerate(names)]
    return [*spoken, *calls, EndChunk(StopKind.STOP)]


@dataclass
class FakeTool:
    """A tool that answers with its name, or when its gate opens."""

    name: str
    gate: Gate = field(default_factory=Gate)
    result: str = ""
    calls: list[str] = field(default_factory=list)
    running: int = 0
    display_text: str = ""
    read_only: bool = False
    time_limit: timedelta = timedelta(seconds=60)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, f"Does {self.name}.", '{"type":"object"}')

    async def run(self, arguments: dict[str, object], context: ToolContext) -> str:
        del arguments
        self.calls.append(context.call_id)
        self.running += 1
        try:
            await self.gate.passing()
        finally:
            self.running -= 1
        return self.result or f"{self.name} done"


@dataclass
class World:
    """Everything around the agents of a server, and the registry that runs them."""

    trace: Trace = field(default_factory=Trace)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    clock: FakeClock = field(default_factory=FakeClock)
    model: FakeModel = field(default_factory=FakeModel)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    logs: dict[str, TraceLog] = field(default_factory=dict)
    max_turns: int = 10
    settle_timeout: timedelta = timedelta(seconds=10)
    preprocessor: Preprocessor = field(default_factory=NoPreprocessor)
    owner_id: str = "server-1"
    executor: ToolExecutor = field(default_factory=ToolRunner)
    inactivity_timeout: timedelta = timedelta(0)
    unwatched_timeout: timedelta = timedelta(0)
    most_agents: int = 100

    def __post_init__(self) -> None:
        self.states = MemoryStateStore(self.trace)
        self.display = MemoryDisplayStore(self.trace)
        self.registry = self._registry()

    def _registry(self) -> AgentRegistry:
        services = AgentServices(
            owner_id=self.owner_id,
            journal=self.journal,
            state_store=self.states,
            display_store=self.display,
            executor=self.executor,
            clock=self.clock,
            profile=self._profile,
            streams=Streams(self._log),
            settle_timeout=self.settle_timeout,
        )
        return AgentRegistry(services, self.preprocessor, most_agents=self.most_agents)

    def _profile(self, name: str) -> Profile:
        if name != "default":
            raise InvalidInputError("options.profile", "unknown", reason="PROFILE_UNKNOWN")
        return Profile(
            name,
            self.model,
            "Be kind.",
            dict(self.tools),
            self.max_turns,
            inactivity_timeout=self.inactivity_timeout,
            unwatched_timeout=self.unwatched_timeout,
        )

    def _log(self, agent_id: str, conversation_id: str) -> TraceLog:
        log = TraceLog(agent_id, conversation_id, self.trace)
        self.logs[agent_id] = log
        return log

    async def run_crashing(self) -> asyncio.Task[None]:
        """Starts the registry in a task that a test kills by cancelling it: nothing is saved."""
        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self.registry.serve(ready))
        await ready.wait()
        return task

    async def __aenter__(self) -> Self:
        self._task = await self.run_crashing()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.registry.close(timedelta(0))
        await self._task

    def kill(self) -> None:
        """Ends everything in the next rounds of the loop, as SIGKILL would."""
        self._task.cancel()

    async def crash_and_restart(self) -> World:
        """Kills all agents as SIGKILL would, and returns a started world on the same disk and stores."""
        self._task.cancel()
        await asyncio.wait({self._task})
        after = World(
            trace=self.trace,
            journal=self.journal,
            clock=self.clock,
            model=self.model,
            tools=self.tools,
            max_turns=self.max_turns,
            settle_timeout=self.settle_timeout,
            preprocessor=self.preprocessor,
            executor=self.executor,
            inactivity_timeout=self.inactivity_timeout,
            unwatched_timeout=self.unwatched_timeout,
            most_agents=self.most_agents,
        )
        after.states, after.display = self.states, self.display
        after.registry = after._registry()
        after._task = await after.run_crashing()
        return after

    def message(self, text: str, request_id: str, agent_id: str = "a") -> AddMessage:
        """A message of a user."""
        return AddMessage(
            scope=SCOPE,
            agent_id=agent_id,
            request_id=request_id,
            message=Message("", Role.USER, (TextPart(text),), START),
        )

    def agent(self, agent_id: str = "a") -> Agent:
        """A live agent."""
        agent = self.registry.live_agent(AgentKey(SCOPE.key, agent_id))
        assert agent is not None
        return agent

    def state(self, agent_id: str = "a") -> AgentState:
        """The state of a live agent."""
        return self.agent(agent_id).core.state
