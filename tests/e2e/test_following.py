"""Readers of a real server whose connections are cut and that are killed themselves."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.client import AgentView, Client, Place, ScopedClient
from tests.support.cutting_proxy import cutting_proxy
from tests.support.real_server import RealServer, ended, real_server, rows, said
from tests.support.repository import ROOT
from tests.support.toolchain import installed_by_npm

EXAMPLES = ROOT / "docs" / "examples"

pytestmark = pytest.mark.timeout(180)

PIECES = [
    "Hello ",
    "\U0001f469\u200d\U0001f4bb",
    " \u05e9\u05dc\u05d5\u05dd",
    "e\u0301",
    " and on ",
    "x" * 300,
    "\n",
]


def grown(words: list[str], times: int) -> list[dict[str, Any]]:
    """Steps of a text that grows in many pieces, with pauses that let readers come and go."""
    return [step for n in range(times) for step in ({"text": [f"{n}:", *words]}, {"sleep": 0.004})]


def talk(times: int) -> list[dict[str, Any]]:
    """A run of two turns: thinking, text, two calls in pieces, and a text after their results."""
    pieces = ['{"text": "', *[f"piece {n} \U0001f389 " for n in range(40)], '"}']
    return [
        {
            "when": {"call_number": 1},
            "repeat": True,
            "steps": [
                {"thinking": [f"thought {n} " for n in range(50)]},
                {"signature": "c2ln"},
                *grown(PIECES, times),
                {"tool_call": {"name": "quick", "arguments": pieces}},
                {"tool_call": {"name": "quick", "arguments": pieces}},
            ],
        },
        {"repeat": True, "steps": grown(PIECES, times)},
    ]


@dataclass
class Reader:
    """A reader that may be killed: what it stored last is all that it has then."""

    view: AgentView = field(default_factory=AgentView)
    place: Place = field(default_factory=Place)
    events: list[pb.Event] = field(default_factory=list)
    snapshots: int = 0
    growing: dict[str, list[str]] = field(default_factory=dict)

    def see(self, item: object, view: AgentView) -> None:
        """Checks an item against what came before."""
        match item:
            case pb.Event():
                if self.events and not self.snapshots:
                    assert item.sequence == self.events[-1].sequence + 1
                self.events.append(item)
                self.snapshots = 0
                if item.HasField("message_completed"):
                    self._completed(item.message_completed.message)
            case pb.Snapshot():
                self.snapshots += 1
                self.growing.clear()
            case pb.Delta():
                message = view.growing[item.message_id]
                self.growing[item.message_id] = [part.text for part in message.parts]

    def _completed(self, message: Any) -> None:
        seen = self.growing.pop(message.message_id, [])
        whole = [
            part.text.text or part.thinking.text or part.tool_call.arguments_json
            for part in message.parts
        ]
        for text, part in zip(seen, whole, strict=False):
            assert part.startswith(text)


async def follow(scope: ScopedClient, last: asyncio.Event, began: asyncio.Barrier) -> Reader:
    """Follows to the end without being killed."""
    waits = True
    reader = Reader()
    async with scope.follow("a") as following:
        async for item in following:
            reader.see(item, following.view)
            if waits:
                # Nothing happens before everybody has begun.
                await began.wait()
                waits = False
            if has_all(following.view, last):
                reader.view = following.view
                break
    return reader


async def follow_and_die(scope: ScopedClient, last: asyncio.Event, dice: random.Random) -> Reader:
    """Follows, dies now and then, and goes on from what it had stored before."""
    stored = Reader()
    while True:
        reader = copy.deepcopy(stored)
        lives = dice.randint(1, 200)
        async with scope.follow("a", view=reader.view, place=reader.place) as following:
            async for item in following:
                reader.see(item, following.view)
                reader.place = following.place
                if has_all(following.view, last):
                    return reader
                if dice.random() < 0.05:
                    stored = copy.deepcopy(reader)
                lives -= 1
                if lives < 0 and not last.is_set():
                    break


def has_all(view: AgentView, last: asyncio.Event) -> bool:
    """Whether a reader has seen the end: the agent sleeps for good, and no row is missing."""
    return last.is_set() and view.is_complete and view.agent.agent_id == "a" and not view.agent.live


@contextlib.asynccontextmanager
async def clients(address: str, count: int) -> AsyncIterator[list[ScopedClient]]:
    async with contextlib.AsyncExitStack() as stack:
        # A subchannel pool of its own, or all of them would share one connection.
        options = (("grpc.use_local_subchannel_pool", 1),)
        yield [
            (await stack.enter_async_context(Client.connect(address, options=options))).scope(
                "acme"
            )
            for _ in range(count)
        ]


def kept(view: AgentView) -> list[bytes]:
    return [row.SerializeToString(deterministic=True) for row in view.transcript()]


async def disturbed(
    server: RealServer, *, seed: int, cuts: int, readers: int, runs: int, kills: int = 0
) -> list[Reader]:
    """Runs an agent under readers that are cut and killed, and compares their transcripts at the end.

    Returns the reader that was not disturbed, those that were cut, and those that were killed as well.
    """
    dice = random.Random(seed)
    scope = await server.start()
    await scope.start_agent("a")
    last = asyncio.Event()
    began = asyncio.Barrier(2 + len(range(0, readers, 2)))
    socket = Path(server.address.removeprefix("unix:"))
    async with (
        cutting_proxy(socket, seed=seed, cuts=cuts) as proxy,
        clients(server.address, 1) as (calm_scope,),
        clients(proxy.address, readers) as channels,
        asyncio.TaskGroup() as group,
    ):
        calm_task = group.create_task(follow(calm_scope, last, began))
        whole = [group.create_task(follow(one, last, began)) for one in channels[::2]]
        mortal = [
            group.create_task(follow_and_die(one, last, random.Random(dice.random())))
            for one in channels[1::2]
        ]
        await began.wait()
        while runs > 0 or proxy.cuts_left > 0:
            reply = await scope.add_message("a", f"go on {runs}")
            if kills > 0:
                kills -= 1
                await server.kill()
                scope = await server.start()
            else:
                await ended(scope, reply.run_id)
            runs -= 1
        last.set()
        await scope.stop_agent("a")
    assert proxy.cuts >= cuts
    stored = [row.SerializeToString(deterministic=True) for row in await rows(scope)]
    result = [task.result() for task in (calm_task, *whole, *mortal)]
    for reader in result:
        assert kept(reader.view) == stored
    return result


def told(reader: Reader) -> list[bytes]:
    return [one.SerializeToString(deterministic=True) for one in reader.events]


async def test_readers_that_are_cut_and_killed_are_told_what_an_undisturbed_one_is() -> None:
    async with real_server(talk(20), tools=("quick",)) as server:
        calm, *others = await disturbed(server, seed=1, cuts=25, readers=6, runs=2)

    assert len(calm.events) > 40
    for reader in others[:3]:
        assert told(reader) == told(calm)
    for reader in others[3:]:
        # One that died before it had stored anything begins later.
        assert told(reader) == told(calm)[-len(reader.events) :]


async def test_readers_that_fall_off_a_small_ring_miss_no_row() -> None:
    small = {"limits": {"event_log_bytes": 64 * 1024}}
    async with real_server(talk(20), tools=("quick",), more=small) as server:
        await disturbed(server, seed=2, cuts=25, readers=6, runs=2)


async def test_readers_of_a_server_that_is_killed_miss_no_row() -> None:
    async with real_server(talk(20), tools=("quick",)) as server:
        await disturbed(server, seed=3, cuts=10, readers=4, runs=3, kills=2)


@pytest.mark.parametrize("language", ["python", pytest.param("node", marks=pytest.mark.node)])
async def test_the_readers_of_the_docs_have_only_the_stub_and_miss_no_row(language: str) -> None:
    """Somebody who follows the page must get there."""
    program = READERS_OF_THE_DOCS[language]()
    async with real_server(talk(20), tools=("quick",)) as server:
        scope = await server.start()
        await scope.start_agent("a")
        socket = Path(server.address.removeprefix("unix:"))
        async with cutting_proxy(socket, seed=4, cuts=12) as proxy:
            reading = await asyncio.create_subprocess_exec(
                *program, proxy.address, "acme", "a", stdout=asyncio.subprocess.PIPE
            )
            while proxy.cuts_left and reading.returncode is None:
                reply = await scope.add_message("a", "go on")
                await ended(scope, reply.run_id)
            await scope.stop_agent("a")
            out, _ = await reading.communicate()
        stored = [[row.position, row.change, said(row)] for row in await rows(scope)]

    assert reading.returncode == 0
    assert [json.loads(line) for line in out.decode().splitlines()] == stored


def python_reader() -> list[str]:
    return [sys.executable, str(EXAMPLES / "follow.py")]


def node_reader() -> list[str]:
    """The program beside its packages, which are installed as its lock says."""
    return ["node", str(installed_by_npm(EXAMPLES / "node") / "follow.js")]


READERS_OF_THE_DOCS = {"python": python_reader, "node": node_reader}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 130))
async def test_readers_miss_nothing_however_they_are_cut(seed: int) -> None:
    """Over 2000 cuts in all; half of the runs on a small ring, a third with a killed server."""
    small = {"limits": {"event_log_bytes": 64 * 1024}}
    more = small if seed % 2 else None
    readers = random.Random(seed).randint(1, 20)
    async with real_server(talk(20), tools=("quick",), more=more) as server:
        await disturbed(
            server, seed=seed, cuts=70, readers=readers, runs=3, kills=2 if seed % 3 == 0 else 0
        )
