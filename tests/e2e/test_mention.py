"""The mention plugin behind a real server: what its users see, and what they lose when it dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from sagentry.api.agent.v1 import agent_service_pb2, agent_service_pb2_grpc
from sagentry.api.type.v1 import display_pb2, message_pb2
from sagentry.client import FailedPreconditionError
from tests.support.mention_plugin import MentionProcess, mention_target
from tests.support.real_server import RealServer, ended, real_server, rows, said, state, texts
from tests.support.serve import wait_healthy
from tests.support.servers import ReceivedError, received

pytestmark = pytest.mark.timeout(180)

ANY: dict[str, Any] = {"repeat": True, "steps": [{"text": "ok"}]}
READS: dict[str, Any] = {
    "when": {"last_user_text": {"regex": "Ship it on Friday"}},
    "repeat": True,
    "steps": [{"text": "Friday, then."}],
}


@contextlib.asynccontextmanager
async def mentioning(target: str | None = None) -> AsyncIterator[RealServer]:
    """A server, not started yet, with the SQL store, the plugin and two documents."""
    async with real_server([READS, ANY]) as server:
        docs = server.folder / "docs"
        docs.mkdir()
        (docs / "Plan.md").write_text("Ship it on Friday.\n")
        (docs / "Quarterly report.txt").write_text("Up 3 %.\n")
        server.add_plugin("mention", target or mention_target(docs), "message_preprocessor")
        yield server


@pytest.fixture
async def process() -> AsyncIterator[tuple[RealServer, MentionProcess]]:
    """A server whose plugin is a process of the test."""
    async with mentioning() as server:
        plugin = MentionProcess(server.folder / "docs", server.folder / "m.sock")
        server.add_plugin("mention", plugin.target, "message_preprocessor")
        await plugin.start()
        try:
            yield server, plugin
        finally:
            await plugin.kill()


async def attached(server: RealServer) -> None:
    await asyncio.to_thread(wait_healthy, server.address, "plugin/mention")


async def failure_of_one_attempt(
    server: RealServer, text: str, *, request_id: str
) -> ReceivedError:
    """Adds a message without the client, which would repeat the call until the plugin is back."""
    request = agent_service_pb2.AddMessageRequest(agent_id="a", request_id=request_id)
    request.scope.scoped.tenant = "acme"
    request.message.role = message_pb2.ROLE_USER
    request.message.parts.add().text.text = text
    async with grpc.aio.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent_service_pb2_grpc.AgentServiceStub(channel).AddMessage(request, timeout=30)
    return received(caught.value)


async def test_people_see_the_chip_and_the_model_reads_the_document() -> None:
    async with mentioning() as server:
        scope = await server.start()
        await attached(server)
        reply = await scope.add_message("a", "When, by @plan?")
        await ended(scope, reply.run_id)
        shown = await rows(scope)
        found = await state(scope)

    text, chip, answer = shown
    assert [said(text), said(answer)] == ["When, by @plan?", "Friday, then."]
    assert chip.content.file_reference == display_pb2.FileReference(
        path="mention:Plan.md", name="Plan", media_type="text/markdown"
    )
    assert chip.type == display_pb2.DISPLAY_MESSAGE_TYPE_USER
    assert chip.message_id == text.message_id == reply.message_id
    assert "Ship it" not in said(text)
    assert texts(found, "user") == [
        'When, by @plan?<document name="Plan.md">\nShip it on Friday.\n</document>'
    ]


async def test_an_unknown_name_is_refused_with_words_for_the_user_and_changes_nothing() -> None:
    async with mentioning() as server:
        scope = await server.start()
        await attached(server)
        await ended(scope, (await scope.add_message("a", "hello")).run_id)
        before = await rows(scope), await state(scope)
        with pytest.raises(FailedPreconditionError) as refused:
            await scope.add_message("a", "What says @Foo?")
        after = await rows(scope), await state(scope)

    assert refused.value.reason == "MESSAGE_REJECTED"
    assert refused.value.metadata["plugin"] == "mention"
    assert refused.value.metadata["rejection"] == "UNKNOWN_MENTION"
    assert refused.value.user_message.startswith(
        'There is no document \u201cFoo\u201d. Known: @Plan, @"Quarterly report".'
    )
    assert refused.value.violations == (("parts[0].text", "There is no document \u201cFoo\u201d."),)
    assert after == before


async def test_while_the_plugin_is_dead_nothing_is_accepted_and_its_restart_heals(
    process: tuple[RealServer, MentionProcess],
) -> None:
    server, plugin = process
    scope = await server.start()
    await attached(server)
    await ended(scope, (await scope.add_message("a", "first")).run_id)
    before = await rows(scope), await state(scope)

    await plugin.kill()
    failed = await failure_of_one_attempt(server, "@Plan?", request_id="r-1")
    after = await rows(scope), await state(scope)
    await plugin.start()
    await attached(server)
    reply = await scope.add_message("a", "@Plan?", request_id="r-1")
    await ended(scope, reply.run_id)
    healed = [said(row) for row in await rows(scope)]

    assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert failed.info.reason == "PLUGIN_UNAVAILABLE"
    assert failed.info.metadata["plugin"] == "mention"
    assert "mention" in failed.message
    assert after == before
    assert not reply.replayed
    assert healed == ["first", "ok", "@Plan?", "", "Friday, then."]


async def test_a_plugin_that_dies_in_the_middle_of_a_conversation_of_many_loses_no_message(
    process: tuple[RealServer, MentionProcess],
) -> None:
    """A caller that repeats its call, as the client does, notices nothing but the wait."""
    server, plugin = process
    scope = await server.start()
    await attached(server)
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(scope.add_message("a", f"@Plan {n}")) for n in range(8)]
        await plugin.kill()
        await plugin.start()
    for call in calls:
        await ended(scope, call.result().run_id)
    shown = [said(row) for row in await rows(scope)]

    assert sorted(text for text in shown if "@" in text) == [f"@Plan {n}" for n in range(8)]
