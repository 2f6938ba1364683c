"""No fault of a handler tells a client more than an error id, whatever kind of RPC it is."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from sagentry.server.errors import InvalidInputError, NotFoundError, UnauthenticatedError
from sagentry.server.logs import JsonFormatter, RequestIdFilter
from sagentry.server.ports import Caller
from sagentry.server.rpc.caller import AnonymousAuthenticator, current_caller
from sagentry.server.rpc.interceptors.admission import AdmissionInterceptor
from sagentry.server.rpc.server import new_server
from tests.support.servers import channel_to, received

SECRET = "the cause of the fault"  # noqa: S105 no password
CODEC: dict[str, Any] = {
    "request_deserializer": StringValue.FromString,
    "response_serializer": StringValue.SerializeToString,
}


@asynccontextmanager
async def serving(
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]],
    *,
    service: str = "test.Kinds",
    authenticator: Any = None,
    admission: AdmissionInterceptor | None = None,
) -> AsyncIterator[Any]:
    server = new_server(
        authenticator or AnonymousAuthenticator(), admission or AdmissionInterceptor()
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channel_to(f"127.0.0.1:{port}") as channel:
        try:
            yield channel
        finally:
            await server.stop(None)


def unary(function: Callable[..., Any]) -> dict[str, Any]:
    return {"Call": grpc.unary_unary_rpc_method_handler(function, **CODEC)}


async def call(channel: Any, path: str = "/test.Kinds/Call", **options: Any) -> Any:
    method = channel.unary_unary(path, StringValue.SerializeToString, StringValue.FromString)
    return await method(StringValue(value="x"), **options)


async def read_all(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def raise_secret(_request: object, _context: object) -> Any:
    raise RuntimeError(SECRET)


async def generate_and_raise_secret(_request: object, _context: object) -> AsyncIterator[Any]:
    yield StringValue(value="first")
    raise RuntimeError(SECRET)


async def write_and_raise_secret(_request: object, context: Any) -> None:
    await context.write(StringValue(value="first"))
    raise RuntimeError(SECRET)


async def wait_for_something_cancelled(_request: object, _context: object) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.cancel(SECRET)
    await future


async def raise_in_two_tasks(_request: object, _context: object) -> Any:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(raise_secret(None, None))
        tasks.create_task(raise_secret(None, None))


def run_synchronously(_request: object, _context: object) -> Any:
    raise RuntimeError(SECRET)


async def return_a_wrong_type(_request: object, _context: object) -> Any:
    return SECRET


async def generate_a_wrong_type(_request: object, _context: object) -> AsyncIterator[Any]:
    yield SECRET


KINDS = {
    "UnaryUnary": grpc.unary_unary_rpc_method_handler(raise_secret, **CODEC),
    "UnaryStreamGenerated": grpc.unary_stream_rpc_method_handler(
        generate_and_raise_secret, **CODEC
    ),
    "UnaryStreamWritten": grpc.unary_stream_rpc_method_handler(write_and_raise_secret, **CODEC),
    "StreamUnary": grpc.stream_unary_rpc_method_handler(raise_secret, **CODEC),
    "StreamStreamGenerated": grpc.stream_stream_rpc_method_handler(
        generate_and_raise_secret, **CODEC
    ),
    "StreamStreamWritten": grpc.stream_stream_rpc_method_handler(write_and_raise_secret, **CODEC),
    "CancelledInside": grpc.unary_unary_rpc_method_handler(wait_for_something_cancelled, **CODEC),
    "CancelledInsideStream": grpc.unary_stream_rpc_method_handler(
        wait_for_something_cancelled, **CODEC
    ),
    "TwoTasks": grpc.unary_unary_rpc_method_handler(raise_in_two_tasks, **CODEC),
    "Synchronous": grpc.unary_unary_rpc_method_handler(run_synchronously, **CODEC),
    "WrongType": grpc.unary_unary_rpc_method_handler(return_a_wrong_type, **CODEC),
    "WrongTypeInStream": grpc.unary_stream_rpc_method_handler(generate_a_wrong_type, **CODEC),
}


async def call_kind(channel: Any, name: str) -> None:
    handler = KINDS[name]
    codec = (StringValue.SerializeToString, StringValue.FromString)
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[handler.request_streaming, handler.response_streaming]
    request = StringValue(value="x")
    method: Any = kind(f"/test.Kinds/{name}", *codec)
    running = method(iter([request]) if handler.request_streaming else request, timeout=10)
    if handler.response_streaming:
        async for _ in running:
            pass
    else:
        await running


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_tells_its_client_an_error_id_and_nothing_else(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(KINDS) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call_kind(channel, kind)

    error = received(caught.value)
    assert error.code is grpc.StatusCode.INTERNAL
    assert (error.info.reason, error.info.domain) == ("INTERNAL", "sagentry")
    [(key, error_id)] = error.info.metadata.items()
    assert key == "error_id"
    assert error_id in error.message
    assert SECRET not in f"{caught.value!r}{caught.value.trailing_metadata()!r}"
    [record] = [record for record in caplog.records if hasattr(record, "error_id")]
    assert vars(record)["error_id"] == error_id
    assert record.exc_info is not None


@pytest.mark.anyio
async def test_what_a_stream_has_sent_before_its_fault_arrives() -> None:
    async with serving(KINDS) as channel:
        method = channel.unary_stream(
            "/test.Kinds/UnaryStreamGenerated",
            StringValue.SerializeToString,
            StringValue.FromString,
        )
        running = method(StringValue(value="x"))

        assert (await running.read()).value == "first"
        assert await running.code() is grpc.StatusCode.INTERNAL


@pytest.mark.anyio
async def test_an_error_that_is_meant_keeps_its_code_reason_and_facts() -> None:
    async def refuse(_request: object, _context: object) -> Any:
        raise NotFoundError("AGENT_NOT_FOUND", "there is no agent a-1", agent_id="a-1")

    async with serving(unary(refuse)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)

    error = received(caught.value)
    assert (error.code, error.message) == (grpc.StatusCode.NOT_FOUND, "there is no agent a-1")
    assert error.info.reason == "AGENT_NOT_FOUND"
    assert dict(error.info.metadata) == {"agent_id": "a-1"}


@pytest.mark.anyio
async def test_an_error_that_is_meant_stays_one_when_a_task_group_carries_it() -> None:
    async def fail() -> None:
        raise InvalidInputError("field", "is wrong")

    async def refuse(_request: object, _context: object) -> Any:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    async with serving(unary(refuse)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)

    assert received(caught.value).info.reason == "FIELD_INVALID"


@pytest.mark.anyio
async def test_a_request_that_is_no_message_is_the_clients_mistake() -> None:
    async with serving(unary(raise_secret)) as channel:
        method = channel.unary_unary("/test.Kinds/Call")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"\xff\xff\xff")

    error = received(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.info.reason == "FIELD_INVALID"


@pytest.mark.anyio
async def test_a_status_that_the_handler_sends_itself_is_left_alone() -> None:
    async def abort(_request: object, context: Any) -> Any:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "said by the handler")

    async with serving(unary(abort)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)

    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert caught.value.details() == "said by the handler"


@pytest.mark.anyio
async def test_a_fault_after_the_status_was_sent_does_not_break_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def abort_and_raise(_request: object, context: Any) -> Any:
        try:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, "said by the handler")
        except grpc.aio.AbortError:
            raise RuntimeError(SECRET) from None

    async with serving(unary(abort_and_raise)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)

    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert any(hasattr(record, "error_id") for record in caplog.records)


@pytest.mark.anyio
async def test_a_client_that_hangs_up_cancels_its_handler_and_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def wait(_request: object, _context: object) -> AsyncIterator[Any]:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        yield StringValue()

    handlers = {"Watch": grpc.unary_stream_rpc_method_handler(wait, **CODEC)}
    async with serving(handlers) as channel:
        method = channel.unary_stream(
            "/test.Kinds/Watch", StringValue.SerializeToString, StringValue.FromString
        )
        running = method(StringValue())
        with anyio.fail_after(10):
            await begun.wait()
            running.cancel()
            await ended.wait()

    assert not [record for record in caplog.records if hasattr(record, "error_id")]


async def answer(_request: object, _context: object) -> Any:
    logging.getLogger("test").warning("seen")
    return StringValue(value=current_caller().name)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "pattern"),
    [("req-1", "req-1"), ("two words", "[0-9a-f]{32}"), (None, "[0-9a-f]{32}")],
)
async def test_client_and_log_share_the_request_id(
    given: str | None, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(RequestIdFilter())
    metadata = [("x-request-id", given)] if given else None

    async with serving(unary(answer)) as channel:
        method = channel.unary_unary(
            "/test.Kinds/Call", StringValue.SerializeToString, StringValue.FromString
        )
        running = method(StringValue(), metadata=metadata)
        await running
        trailers = await running.trailing_metadata()

    assert re.fullmatch(pattern, trailers["x-request-id"])
    [record] = [record for record in caplog.records if record.name == "test"]
    assert vars(record)["request_id"] == trailers["x-request-id"]


@pytest.mark.anyio
async def test_a_failed_call_has_its_request_id_too() -> None:
    async with serving(unary(raise_secret)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, metadata=[("x-request-id", "req-2")])

    assert caught.value.trailing_metadata()["x-request-id"] == "req-2"


@pytest.mark.anyio
async def test_each_rpc_is_one_debug_line_without_contents(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "sagentry.server.rpc.interceptors.logging")

    async with serving(unary(answer)) as channel:
        await call(channel)

    [record] = [record for record in caplog.records if record.msg == "rpc ended"]
    assert (vars(record)["method"], vars(record)["code"]) == ("test.Kinds/Call", "OK")
    assert "anonymous" not in JsonFormatter().format(record)


class TokenAuthenticator:
    async def authenticate(self, metadata: Any, _peer: str) -> Caller:
        name = dict(metadata).get("authorization")
        if name is None:
            raise UnauthenticatedError("UNAUTHENTICATED", "no credentials", scheme="Bearer")
        return Caller(name=name, is_service=True, is_admin=name == "root")


@pytest.mark.anyio
async def test_a_servicer_knows_its_caller() -> None:
    async with serving(unary(answer), authenticator=TokenAuthenticator()) as channel:
        reply = await call(channel, metadata=[("authorization", "ada")])

    assert reply.value == "ada"


@pytest.mark.anyio
async def test_nobody_gets_in_without_credentials() -> None:
    async with serving(unary(answer), authenticator=TokenAuthenticator()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)

    error = received(caught.value)
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert error.info.reason == "UNAUTHENTICATED"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "code"), [("ada", grpc.StatusCode.PERMISSION_DENIED), ("root", grpc.StatusCode.OK)]
)
async def test_the_admin_service_is_for_admins_only(name: str, code: grpc.StatusCode) -> None:
    service = "sagentry.api.admin.v1.AdminService"
    authenticator = TokenAuthenticator()

    async with serving(unary(answer), service=service, authenticator=authenticator) as channel:
        method = channel.unary_unary(f"/{service}/Call")
        running = method(b"", metadata=[("authorization", name)])

        assert await running.code() is code


@pytest.mark.anyio
async def test_a_draining_server_ends_its_streams_with_a_reason() -> None:
    begun = anyio.Event()

    async def wait(_request: object, _context: object) -> AsyncIterator[Any]:
        begun.set()
        await anyio.sleep_forever()
        yield StringValue()

    admission = AdmissionInterceptor()
    handlers = {"Watch": grpc.unary_stream_rpc_method_handler(wait, **CODEC)}
    async with serving(handlers, admission=admission) as channel:
        method = channel.unary_stream("/test.Kinds/Watch")
        open_stream = method(b"")
        with anyio.fail_after(10):
            await begun.wait()
            admission.end_streams()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await open_stream.read()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(b"").read()

    for caught in (ended, refused):
        error = received(caught.value)
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert error.info.reason == "SERVER_DRAINING"
        assert error.details["RetryInfo"].retry_delay.seconds == 2


@pytest.mark.anyio
async def test_a_stream_in_the_middle_of_a_write_is_ended_with_a_reason_after_it() -> None:
    admission = AdmissionInterceptor()
    written = 0

    async def write_without_end(_request: object, context: Any) -> None:
        nonlocal written
        while True:
            written += 1
            await context.write(StringValue(value="x" * 500_000))

    handlers = {"Watch": grpc.unary_stream_rpc_method_handler(write_without_end, **CODEC)}
    async with serving(handlers, admission=admission) as channel:
        open_stream = channel.unary_stream("/test.Kinds/Watch")(b"")
        with anyio.fail_after(20):
            await open_stream.read()
            before = -1
            # Until the reader that does not read has made the writer wait.
            while written != before:
                before = written
                await anyio.wait_all_tasks_blocked()
            admission.end_streams()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await read_all(open_stream)

    assert received(caught.value).info.reason == "SERVER_DRAINING"


@pytest.mark.anyio
async def test_calls_under_way_can_be_waited_for() -> None:
    admission = AdmissionInterceptor()
    begun, may_end = anyio.Event(), anyio.Event()
    steps = []

    async def wait(_request: object, _context: object) -> Any:
        begun.set()
        await may_end.wait()
        steps.append("answered")
        return StringValue()

    async def wait_answered() -> None:
        await begun.wait()
        admission.refuse_work()
        may_end.set()
        await admission.wait_answered()
        steps.append("waited")

    async with serving(unary(wait), admission=admission) as channel:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait_answered)
                await call(channel)

    assert steps == ["answered", "waited"]
