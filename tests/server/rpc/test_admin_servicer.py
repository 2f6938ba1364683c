"""What an operator sees of plugins, and how the end of the server is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as pb_grpc
from sagentry.server.domain.plugins import PluginView
from tests.support.fake_plugins import TIME, FakePlugins, plugin_failure, plugin_view
from tests.support.servers import Served, received, served


@pytest.fixture
def plugins() -> FakePlugins:
    made = FakePlugins()
    made.show(plugin_view("store"))
    made.show(plugin_view("mention", is_attached=False))
    return made


def admin(running: Served) -> pb_grpc.AdminServiceAsyncStub:
    stub: pb_grpc.AdminServiceAsyncStub = pb_grpc.AdminServiceStub(running.channel)
    return stub


@pytest.mark.anyio
async def test_all_plugins_are_listed_with_what_is_wrong(plugins: FakePlugins) -> None:
    async with served(plugins=plugins) as running:
        response = await admin(running).ListPlugins(pb.ListPluginsRequest())

    mention, store = response.plugins
    assert (mention.name, mention.state) == ("mention", pb.PLUGIN_STATE_CONNECTING)
    assert (mention.problem, mention.problem_reason) == (
        "connection refused",
        "PLUGIN_UNAVAILABLE",
    )
    assert mention.next_attempt_time.ToDatetime(UTC) == TIME + timedelta(seconds=1)
    assert not mention.HasField("identity")
    assert (store.name, store.state) == ("store", pb.PLUGIN_STATE_ATTACHED)
    assert store.identity.name == "com.example.store"
    assert list(store.contracts[0].capabilities) == ["FENCING"]
    assert not store.HasField("next_attempt_time")


@pytest.mark.anyio
async def test_one_plugin_can_be_read(plugins: FakePlugins) -> None:
    async with served(plugins=plugins) as running:
        response = await admin(running).GetPlugin(pb.GetPluginRequest(name="store"))

    assert response.plugin.target == "unix:/store"


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "reason"), [("stroe", "PLUGIN_NOT_FOUND"), ("", "FIELD_INVALID")])
async def test_a_wrong_name_is_told_apart_from_a_missing_one(
    plugins: FakePlugins, name: str, reason: str
) -> None:
    async with served(plugins=plugins) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin(running).GetPlugin(pb.GetPluginRequest(name=name))

    assert received(caught.value).info.reason == reason


@pytest.mark.anyio
async def test_failures_are_paged_without_gap_or_repetition_while_new_ones_come(
    plugins: FakePlugins,
) -> None:
    for number in range(5):
        plugins.fail(plugin_failure("store", number))

    async with served(plugins=plugins) as running:
        first = await admin(running).ListFailures(pb.ListFailuresRequest(page_size=2))
        plugins.fail(plugin_failure("store", 5))
        second = await admin(running).ListFailures(
            pb.ListFailuresRequest(page_size=2, page_token=first.next_page_token)
        )
        # What the token names is gone: the oldest are dropped.
        del plugins.failures[-2:]
        third = await admin(running).ListFailures(
            pb.ListFailuresRequest(page_size=2, page_token=second.next_page_token)
        )

    assert [failure.request_id for failure in first.failures] == ["r-4", "r-3"]
    assert [failure.request_id for failure in second.failures] == ["r-2", "r-1"]
    assert not third.failures
    assert not third.next_page_token


@pytest.mark.anyio
async def test_failures_of_one_moment_are_all_shown(plugins: FakePlugins) -> None:
    for number in range(3):
        plugins.fail(plugin_failure("store", number, time=TIME))

    shown = []
    async with served(plugins=plugins) as running:
        token = ""
        for _ in range(3):
            page = await admin(running).ListFailures(
                pb.ListFailuresRequest(plugin="store", page_size=1, page_token=token)
            )
            token = page.next_page_token
            shown += [failure.request_id for failure in page.failures]

    assert shown == ["r-2", "r-1", "r-0"]
    assert token == ""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"page_size": 1001}, "FIELD_INVALID"),
        ({"page_size": -1}, "FIELD_INVALID"),
        ({"page_token": "%%%"}, "PAGE_TOKEN_INVALID"),
        ({"page_token": "bm90IGpzb24"}, "PAGE_TOKEN_INVALID"),
        ({"page_token": "ü"}, "PAGE_TOKEN_INVALID"),
        ({"plugin": "stroe"}, "PLUGIN_NOT_FOUND"),
    ],
)
async def test_a_wrong_page_is_refused(
    plugins: FakePlugins, fields: dict[str, Any], reason: str
) -> None:
    async with served(plugins=plugins) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin(running).ListFailures(pb.ListFailuresRequest(**fields))

    assert received(caught.value).info.reason == reason


@pytest.mark.anyio
async def test_a_token_of_another_list_is_refused(plugins: FakePlugins) -> None:
    plugins.fail(plugin_failure("store", 1))
    plugins.fail(plugin_failure("store", 2))

    async with served(plugins=plugins) as running:
        page = await admin(running).ListFailures(pb.ListFailuresRequest(page_size=1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin(running).ListFailures(
                pb.ListFailuresRequest(plugin="store", page_token=page.next_page_token)
            )

    assert received(caught.value).info.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.anyio
async def test_a_plugin_that_works_is_shown_with_how_long_it_took(plugins: FakePlugins) -> None:
    async with served(plugins=plugins) as running:
        response = await admin(running).TestCall(pb.TestCallRequest(plugin="store"))

    assert response.plugin.state == pb.PLUGIN_STATE_ATTACHED
    assert response.HasField("elapsed")
    assert not response.HasField("failure")


@pytest.mark.anyio
async def test_a_plugin_that_fails_is_an_answer_with_the_failure(plugins: FakePlugins) -> None:
    def fail(name: str) -> PluginView:
        plugins.fail(plugin_failure(name, 7, time=datetime.now(UTC)))
        return plugins.get_plugin(name)

    plugins.test_result = fail

    async with served(plugins=plugins) as running:
        response = await admin(running).TestCall(pb.TestCallRequest(plugin="mention"))

    assert response.plugin.problem == "connection refused"
    assert response.failure.request_id == "r-7"
    assert not response.HasField("elapsed")


@pytest.mark.anyio
async def test_an_old_failure_is_not_taken_for_that_of_the_test(plugins: FakePlugins) -> None:
    plugins.fail(plugin_failure("mention", 1))

    async with served(plugins=plugins) as running:
        response = await admin(running).TestCall(pb.TestCallRequest(plugin="mention"))

    assert not response.HasField("failure")


@pytest.mark.anyio
async def test_the_end_of_the_server_can_be_asked_for_and_shortened(plugins: FakePlugins) -> None:
    async with served(plugins=plugins) as running:
        first = await admin(running).DrainServer(pb.DrainServerRequest())
        second = await admin(running).DrainServer(
            pb.DrainServerRequest(budget=duration_pb2.Duration(seconds=2))
        )
        third = await admin(running).DrainServer(
            pb.DrainServerRequest(budget=duration_pb2.Duration(seconds=60))
        )
        with anyio.fail_after(5):
            await running.server.drain.wait_begun()

    times = [reply.end_time.ToDatetime(UTC) for reply in (first, second, third)]
    assert times[0] - times[1] > timedelta(seconds=15)
    assert abs(times[1] - times[2]) < timedelta(seconds=1)


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [-1, 100_000])
async def test_an_impossible_budget_is_refused_and_ends_nothing(
    plugins: FakePlugins, seconds: int
) -> None:
    async with served(plugins=plugins) as running:
        request = pb.DrainServerRequest(budget=duration_pb2.Duration(seconds=seconds))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin(running).DrainServer(request)

        assert not running.server.drain.has_begun
    assert received(caught.value).info.reason == "FIELD_INVALID"
