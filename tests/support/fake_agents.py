"""An agent directory that answers what tests tell it to and keeps what it was asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from sagentry.server.domain.commands import SubscribeEvents
from sagentry.server.domain.scope import Scope
from sagentry.server.errors import SagentryError
from sagentry.server.events.log import EventLog
from sagentry.server.stream_ports import EventSource, WatchSource
from tests.support.events import new_log, snapshot


class WatchedSource:
    """A source that says whether it was closed."""

    def __init__(self, source: EventSource, directory: FakeAgents) -> None:
        self._source = source
        self._directory = directory

    async def next_batch(self) -> bytes | None:
        return await self._source.next_batch()

    def close(self) -> None:
        self._source.close()
        self._directory.on_close()


class FakeAgents:
    """Answers each call with the next of `answers`: a reply, or an error to raise."""

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.commands: list[Any] = []
        self.log: EventLog = new_log()
        self.on_close: Callable[[], None] = lambda: None

    async def _answer(self, *command: Any) -> Any:
        self.commands.append(command[0] if len(command) == 1 else command)
        answer = self.answers.popleft()
        if isinstance(answer, SagentryError):
            raise answer
        return answer

    start_agent = get_agent = list_agents = stop_agent = add_message = start_run = _answer
    get_run = cancel_run = get_state = list_rows = pause_run = resume_agent = _answer

    def watch(self, scope: Scope) -> WatchSource:
        self.commands.append(scope)
        source: WatchSource = self.answers.popleft()
        return source

    def touch_agent(self, scope: Scope, agent_id: str) -> bool:
        self.commands.append(("touch", scope.key, agent_id))
        return True

    async def subscribe(self, command: SubscribeEvents) -> EventSource:
        self.commands.append(command)
        if self.answers:
            raise self.answers.popleft()
        source = self.log.subscribe(
            command.cursor, command.kinds, policy=command.policy, snapshot=snapshot
        )
        return WatchedSource(source, self)
