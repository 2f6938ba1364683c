"""Ours: the real server with all that lies between an agent's log and its readers.

The log is filled at the wanted pace. What lies before it, the model and the agent's work, is in the
benchmark as whole agents.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import cast

from bench.fanout import feed
from sagentry.server.addresses import TcpAddress
from sagentry.server.agent.streams import Streams
from sagentry.server.app import FinishAgents, running_server
from sagentry.server.app_agents import SystemClock
from sagentry.server.domain.commands import SubscribeEvents
from sagentry.server.domain.scope import AgentKey, ScopeKey, ScopeKind
from sagentry.server.events.log import EventLog
from sagentry.server.events.subscription import Subscription
from sagentry.server.ports import AgentDirectory
from sagentry.server.rpc.event_encoder import ProtoEventEncoder
from sagentry.server.settings import Settings
from sagentry.server.stream_ports import EventSource

KEY = AgentKey(ScopeKey(ScopeKind.UNSCOPED), "a")


class OneAgent:
    """The directory of a server with one agent, of which only the log is there."""

    def __init__(self, settings: Settings) -> None:
        encoder = ProtoEventEncoder()
        self._streams = Streams(
            lambda agent_id, conversation_id: EventLog(
                agent_id,
                conversation_id,
                encoder=encoder,
                clock=SystemClock(),
                max_bytes=settings.limits.event_log_bytes,
            )
        )
        self._log = cast("EventLog", self._streams.log(KEY, "a"))
        self._readers: list[Subscription] = []

    async def subscribe(self, command: SubscribeEvents) -> EventSource:
        """Opens a stream."""
        source = self._streams.subscribe(KEY, command, None)
        self._readers.append(cast("Subscription", source))
        return source

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return len(self._readers)

    def emit(self) -> None:
        self._log.publish_delta(feed.delta())

    def lead(self) -> int:
        """Returns how far the slowest reader is behind."""
        head = self._log.head
        # Reads what no one else needs to know, so that the server's own code is as it ships.
        return head - min((reader._index for reader in self._readers), default=head)  # noqa: SLF001


async def serve(rate: float, streams: int) -> None:
    """Serves until killed."""
    agents: list[OneAgent] = []

    @contextlib.asynccontextmanager
    async def make_agents(
        settings: Settings, *_: object
    ) -> AsyncIterator[tuple[AgentDirectory, FinishAgents]]:
        agents.append(OneAgent(settings))

        async def finish(_: timedelta) -> None:
            pass

        yield cast("AgentDirectory", agents[0]), finish

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), listen=(TcpAddress("127.0.0.1", 0),))
        async with running_server(settings, make_agents=make_agents) as server:
            print(server.addresses[0], flush=True)
            agent = agents[0]
            await feed.produce(rate, agent.emit, agent.lead, ready=lambda: agent.readers >= streams)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--streams", type=int, default=1, help="how many to wait for")
    options = parser.parse_args()
    asyncio.run(serve(options.rate, options.streams))


if __name__ == "__main__":
    main()
