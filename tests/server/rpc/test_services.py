"""What a client without any proto files finds: services, their description, their health."""

from __future__ import annotations

from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_database import DescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from sagentry.api.admin.v1 import admin_service_pb2
from sagentry.api.agent.v1 import agent_service_pb2, event_service_pb2
from sagentry.server.rpc import names
from tests.support.fake_plugins import FakePlugins, plugin_view
from tests.support.servers import Served, channel_to, health_stub, port_of, received, served

any_health_pb2: Any = health_pb2  # the published stubs are older than List

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

SERVICES = {
    names.AGENT_SERVICE,
    names.EVENT_SERVICE,
    names.ADMIN_SERVICE,
    names.HEALTH_SERVICE,
    names.REFLECTION_V1_SERVICE,
    names.REFLECTION_V1ALPHA_SERVICE,
}

IMPLEMENTED = {"ListPlugins", "GetPlugin", "ListFailures", "TestCall", "DrainServer"}

METHODS = [
    method
    for file in (agent_service_pb2, event_service_pb2, admin_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


async def reflect(
    channel: Any,
    version: str,
    request: reflection_pb2.ServerReflectionRequest,
) -> reflection_pb2.ServerReflectionResponse:
    method = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    response: reflection_pb2.ServerReflectionResponse = await method(iter([request])).read()
    return response


@pytest.mark.anyio
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_both_versions_of_reflection_list_everything_that_is_served(version: str) -> None:
    async with served() as running:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        response = await reflect(running.channel, version, request)

    listed = {service.name for service in response.list_services_response.service}
    assert listed == SERVICES


@pytest.mark.anyio
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@pytest.mark.parametrize("symbol", [*sorted(SERVICES), "google.rpc.ErrorInfo"])
async def test_both_versions_of_reflection_describe_everything(version: str, symbol: str) -> None:
    async with served() as running:
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
        response = await reflect(running.channel, version, request)

    database = DescriptorDatabase()
    for raw in response.file_descriptor_response.file_descriptor_proto:
        database.Add(descriptor_pb2.FileDescriptorProto.FromString(raw))
    assert DescriptorPool(database).FindFileContainingSymbol(symbol) is not None


@pytest.mark.anyio
async def test_a_client_can_be_built_from_reflection_alone() -> None:
    async with served() as running:
        port = port_of(running.server)

        def find() -> list[str]:
            options = (("grpc.enable_http_proxy", 0),)
            with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                pool = DescriptorPool(database)
                service = pool.FindServiceByName(names.AGENT_SERVICE)
                return [method.name for method in service.methods]

        found = await anyio.to_thread.run_sync(find)

    assert found == [method.name for method in names.AGENT.methods]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "method",
    [method for method in METHODS if method.name not in IMPLEMENTED],
    ids=lambda method: method.name,
)
async def test_a_method_that_is_not_there_yet_says_so(method: MethodDescriptor) -> None:
    path = f"{method.containing_service.full_name}/{method.name}"

    async with served() as running:
        if method.server_streaming:
            result: Any = running.channel.unary_stream(f"/{path}")(b"").read()
        else:
            result = running.channel.unary_unary(f"/{path}")(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await result

    error = received(caught.value)
    assert error.code is grpc.StatusCode.UNIMPLEMENTED
    assert error.info.reason == "NOT_YET_AVAILABLE"
    assert error.info.metadata["method"] == path


async def check(running: Served, name: str) -> int:
    stub = health_stub(running.channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service=name))
    status: int = response.status
    return status


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["", *sorted(SERVICES)])
async def test_a_running_server_is_healthy(name: str) -> None:
    async with served() as running:
        assert await check(running, name) == SERVING


@pytest.mark.anyio
async def test_readiness_waits_for_a_late_plugin_and_names_it() -> None:
    plugins = FakePlugins()
    plugins.show(plugin_view("store", is_attached=False))

    async with served(plugins=plugins) as running:
        before = [await check(running, name) for name in ("", "plugin/store")]
        admin = await check(running, names.ADMIN_SERVICE)
        plugins.show(plugin_view("store"))
        after = [await check(running, name) for name in ("", "plugin/store")]

    assert before == [NOT_SERVING, NOT_SERVING]
    assert admin == SERVING
    assert after == [SERVING, SERVING]


@pytest.mark.anyio
async def test_losing_a_plugin_shows_under_its_name_and_does_not_stop_the_server() -> None:
    plugins = FakePlugins()
    plugins.show(plugin_view("store"))

    async with served(plugins=plugins) as running:
        stub = health_stub(running.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="plugin/store"))
        first = await watch.read()
        view = plugin_view("store", is_attached=False)
        plugins.show(view)
        second = await watch.read()
        overall = await check(running, "")

    assert [first.status, second.status] == [SERVING, NOT_SERVING]
    assert overall == SERVING


@pytest.mark.anyio
async def test_an_unknown_name_is_not_found_and_can_be_waited_for() -> None:
    async with served() as running:
        stub = health_stub(running.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(running, "plugin/later")
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="plugin/later"))
        first = await watch.read()
        running.plugins.show(plugin_view("later"))
        second = await watch.read()

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert first.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert second.status == SERVING


@pytest.mark.skipif(
    not hasattr(health_pb2, "HealthListRequest"),
    reason="this grpcio-health-checking is older than List",
)
@pytest.mark.anyio
async def test_health_of_everything_can_be_listed() -> None:
    async with served() as running:
        stub = health_stub(running.channel)
        response = await stub.List(any_health_pb2.HealthListRequest())

    assert set(response.statuses) == {"", *SERVICES}


@pytest.mark.anyio
async def test_a_request_over_4_mib_is_taken() -> None:
    request = admin_service_pb2.GetPluginRequest(name="x" * 5_000_000)

    async with served() as running, channel_to(f"127.0.0.1:{port_of(running.server)}") as channel:
        method = channel.unary_unary(f"/{names.ADMIN_SERVICE}/GetPlugin")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request.SerializeToString())

    assert received(caught.value).info.reason == "FIELD_INVALID"
