"""Plugins of both kinds on real sockets."""
# ruff: noqa: N802  methods are named as in the contract

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as pb_grpc
from sagentry.api.plugin.v1 import plugin_pb2, plugin_pb2_grpc
from sagentry.plugins.sdk import (
    DeclarationError,
    EndpointError,
    MixedKindsError,
    ServeOptions,
    serve_async,
    serving,
    serving_in_threads,
)
from tests.support.sdk_plugins import TEXT, Looped, Threaded, request

pytestmark = pytest.mark.anyio

PREPROCESSOR = "sagentry.api.plugin.v1.MessagePreprocessorService"
Probe: TypeAlias = Threaded | Looped


def at(endpoint: object, **more: object) -> ServeOptions:
    """Returns the options of a plugin at an endpoint; a path is a Unix socket."""
    where = f"unix:{endpoint}" if isinstance(endpoint, Path) else endpoint
    options = {"name": "com.example.probe", "version": "1", "endpoint": where} | more
    return cast("ServeOptions", options)


@pytest.fixture
def path() -> Iterator[Path]:
    """Short: the path of a socket may have 107 bytes."""
    with TemporaryDirectory() as folder:
        yield Path(folder) / "p.sock"


@pytest.fixture(params=[Threaded, Looped])
def plugin(request: pytest.FixtureRequest) -> Probe:
    made: Probe = request.param()
    return made


@asynccontextmanager
async def connected(plugin: object, options: ServeOptions) -> AsyncIterator[grpc.aio.Channel]:
    async with (
        serving(plugin, **at(**options)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


def preprocessor(channel: grpc.aio.Channel) -> pb_grpc.MessagePreprocessorServiceAsyncStub:
    stub: pb_grpc.MessagePreprocessorServiceAsyncStub = pb_grpc.MessagePreprocessorServiceStub(
        channel
    )
    return stub


async def failed(channel: grpc.aio.Channel, text: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await preprocessor(channel).PreprocessMessage(request(text), timeout=5)
    return caught.value


async def test_a_call_is_answered_over_a_unix_socket(plugin: Probe, path: Path) -> None:
    async with connected(plugin, at(path)) as channel:
        answer = await preprocessor(channel).PreprocessMessage(request("hello"), timeout=5)

    assert answer.request_id == "r-1"
    remaining = plugin.calls[0].remaining()
    assert remaining is not None
    assert remaining < timedelta(seconds=6)  # the wire rounds it up


async def test_a_call_is_answered_over_tcp_on_the_port_that_the_system_chose(plugin: Probe) -> None:
    async with serving(plugin, **at("127.0.0.1:0")) as address:
        assert address.startswith("127.0.0.1:")
        async with grpc.aio.insecure_channel(address) as channel:
            await preprocessor(channel).PreprocessMessage(request("hello"), timeout=5)


async def test_the_socket_is_for_its_owner_only(plugin: Probe, path: Path) -> None:
    async with connected(plugin, at(path)):
        assert mode_of(path) == 0o600


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_second_plugin_on_the_same_address_is_refused(plugin: Probe, path: Path) -> None:
    async with (
        serving(plugin, **at("127.0.0.1:0")) as tcp,
        connected(plugin, at(path)),
    ):
        for taken in (tcp, f"unix:{path}"):
            with pytest.raises(EndpointError, match=r"in use|another process"):
                async with serving(Threaded(), **at(taken)):
                    pass


async def test_a_secret_in_an_exception_stays_in_the_log(plugin: Probe, path: Path) -> None:
    async with connected(plugin, at(path)) as channel:
        error = await failed(channel, "raise")

    assert error.code() is grpc.StatusCode.INTERNAL
    assert TEXT not in f"{error.details()}{error.trailing_metadata()}"
    assert "internal error, id" in str(error.details())


async def test_a_refusal_has_its_details(plugin: Probe, path: Path) -> None:
    async with connected(plugin, at(path)) as channel:
        error = await failed(channel, "overloaded")

    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # works on errors too
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (error.code(), info.reason, info.domain) == (
        grpc.StatusCode.UNAVAILABLE,
        "OVERLOADED",
        "com.example.probe",
    )


async def test_a_cancellation_from_inside_is_answered_at_once(path: Path) -> None:
    async with connected(Looped(), at(path)) as channel:
        error = await failed(channel, "cancel")

    assert error.code() is grpc.StatusCode.INTERNAL


async def test_undeclared_methods_and_contracts_are_unimplemented(
    plugin: Probe, path: Path
) -> None:
    async with connected(plugin, at(path)) as channel:
        call: Any = channel.unary_unary("/sagentry.api.plugin.v1.AgentPersistenceService/LoadState")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=5)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_is_served_for_the_plugin_and_each_contract(plugin: Probe, path: Path) -> None:
    async with connected(plugin, at(path)) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", PREPROCESSOR, "sagentry.api.plugin.v1.PluginService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_describes_the_plugin_and_itself(
    plugin: Probe,
    path: Path,
    version: str,
) -> None:
    service = f"grpc.reflection.{version}.ServerReflection"
    async with connected(plugin, at(path)) as channel:
        stream: Any = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services="*"),
            *(
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
                for symbol in (service, PREPROCESSOR, "google.rpc.ErrorInfo")
            ),
        ]
        listed, *files = [each async for each in stream(iter(asked), timeout=5)]

    names = {item.name for item in listed.list_services_response.service}
    assert {PREPROCESSOR, service, "grpc.health.v1.Health"} <= names
    assert [bool(each.file_descriptor_response.file_descriptor_proto) for each in files] == [
        True
    ] * 3


async def test_the_hook_is_told_what_came_of_the_attachment(plugin: Probe, path: Path) -> None:
    told: list[plugin_pb2.ReportAttachmentRequest] = []
    report = plugin_pb2.ReportAttachmentRequest(outcome=plugin_pb2.ATTACHMENT_OUTCOME_REFUSED)
    report.context.request_id = "r-1"
    async with connected(plugin, at(path, on_attachment=told.append)) as channel:
        answer = await plugin_pb2_grpc.PluginServiceStub(channel).ReportAttachment(
            report, timeout=5
        )

    assert answer.request_id == "r-1"
    assert [each.outcome for each in told] == [plugin_pb2.ATTACHMENT_OUTCOME_REFUSED]


async def test_a_request_over_the_declared_limit_is_refused(plugin: Probe, path: Path) -> None:
    limits = plugin_pb2.PluginLimits(max_request_bytes=1024)
    async with connected(plugin, at(path, limits=limits)) as channel:
        error = await failed(channel, "x" * 2048)

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_eight_megabytes_pass_both_ways_by_default(path: Path) -> None:
    class Echo(Looped):
        async def PreprocessMessage(
            self,
            request: pb.PreprocessMessageRequest,
            call: Any,
        ) -> pb.PreprocessMessageResponse:
            response = await super().PreprocessMessage(request, call)
            response.accepted.llm_message.CopyFrom(request.message)
            return response

    text = "x" * 8 * 1024 * 1024
    async with (
        serving(Echo(), **at(path)) as address,
        grpc.aio.insecure_channel(
            address, options=[("grpc.max_receive_message_length", 32 * 1024 * 1024)]
        ) as channel,
    ):
        answer = await preprocessor(channel).PreprocessMessage(request(text), timeout=20)

    assert answer.accepted.llm_message.parts[0].text.text == text


async def test_ending_lets_a_call_finish_and_says_not_serving_meanwhile(
    plugin: Probe, path: Path
) -> None:
    """An open health stream neither holds up the end nor ends before it has told."""
    async with (
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
        asyncio.timeout(20),
        asyncio.TaskGroup() as tasks,
        serving(plugin, **at(path, stop_budget=timedelta(minutes=10))),
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)
        states = aiter(health.Watch(health_pb2.HealthCheckRequest()))
        first = await anext(states)
        answer = tasks.create_task(call_waiting(channel))
        await has_begun(plugin)
        second = tasks.create_task(release_at_next(states, plugin))

    assert first.status == health_pb2.HealthCheckResponse.SERVING
    assert second.result().status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert answer.result().request_id == "r-1"


async def call_waiting(channel: grpc.aio.Channel) -> pb.PreprocessMessageResponse:
    return await preprocessor(channel).PreprocessMessage(request("wait"), timeout=20)


async def has_begun(plugin: Probe) -> None:
    if isinstance(plugin, Looped):
        await plugin.has_begun.wait()
    else:
        await asyncio.to_thread(plugin.has_begun.wait)


async def release_at_next(
    states: AsyncIterator[health_pb2.HealthCheckResponse], plugin: Probe
) -> health_pb2.HealthCheckResponse:
    state = await anext(states)
    plugin.may_go_on.set()
    return state


async def test_a_call_that_outlasts_the_budget_is_cut(path: Path) -> None:
    plugin = Looped()
    async with (
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
        asyncio.TaskGroup() as tasks,
        serving(plugin, **at(path, stop_budget=timedelta(0))),
    ):
        call = tasks.create_task(failed(channel, "wait"))
        await plugin.has_begun.wait()

    assert call.result().code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_a_synchronous_plugin_is_served_without_an_event_loop(path: Path) -> None:
    with (
        serving_in_threads(Threaded(), **at(path)) as address,
        grpc.insecure_channel(address) as channel,
    ):
        stub = pb_grpc.MessagePreprocessorServiceStub(channel)
        assert stub.PreprocessMessage(request("hello"), timeout=5).request_id == "r-1"


def test_threads_and_loops_are_not_confused(path: Path) -> None:
    with (
        pytest.raises(MixedKindsError, match="use serving"),
        serving_in_threads(Looped(), **at(path)),
    ):
        pass


async def test_serve_async_wants_coroutines(path: Path) -> None:
    with pytest.raises(MixedKindsError, match="use serve"):
        await serve_async(Threaded(), **at(path))


async def test_nothing_is_left_behind_when_the_declaration_is_wrong(path: Path) -> None:
    with pytest.raises(DeclarationError):
        async with serving(Looped(), **at(path, name="Not A Name", version="1")):
            pass

    assert list(path.parent.iterdir()) == []


class Generated(pb_grpc.MessagePreprocessorServiceServicer):
    """Of the generated class: gRPC's own context is the second argument."""

    async def PreprocessMessage(
        self, request: pb.PreprocessMessageRequest, context: Any
    ) -> pb.PreprocessMessageResponse:
        if request.message.parts[0].text.text == "abort":
            await context.abort(grpc.StatusCode.ABORTED, "own words")
        response = pb.PreprocessMessageResponse()
        response.accepted.SetInParent()
        return response


class GeneratedThreaded(pb_grpc.MessagePreprocessorServiceServicer):
    """The same, synchronous."""

    def PreprocessMessage(
        self, request: pb.PreprocessMessageRequest, context: Any
    ) -> pb.PreprocessMessageResponse:
        if request.message.parts[0].text.text == "abort":
            context.abort(grpc.StatusCode.ABORTED, "own words")
        response = pb.PreprocessMessageResponse()
        response.accepted.SetInParent()
        return response


@pytest.mark.parametrize("kind", [Generated, GeneratedThreaded])
async def test_a_servicer_of_the_generated_class_keeps_its_context(
    kind: type[object], path: Path
) -> None:
    async with connected(kind(), at(path)) as channel:
        answer = await preprocessor(channel).PreprocessMessage(request("hello"), timeout=5)
        error = await failed(channel, "abort")

    assert answer.request_id == "r-1"
    assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "own words")
