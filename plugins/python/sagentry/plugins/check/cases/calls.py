"""Level 0: health, the calls of PluginService, and that what is declared is really there.

None of these calls can change what a plugin stores: they are for no tenant, or are refused.
"""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.check.answer import Answer, CheckFailedError, SkippedError
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.methods import (
    CHECK_HEALTH,
    CONTRACT_METHODS,
    GET_PLUGIN_INFO,
    PLUGIN,
    REPORT_ATTACHMENT,
)
from sagentry.plugins.check.session import Session

cases = Cases("attach", contract=PLUGIN, level=Level.ATTACH)

_MAX_MESSAGE_BYTES = 1024
_MAX_DETAILS_BYTES = 4096
_REPETITIONS = 3
_CONCURRENT = 16
_UNKNOWN_FIELD = b"\x82\xd3\x0e\x06future"  # field 30000, a string that no version knows yet
_UNKNOWN_NUMBER = 77
_REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


async def _health(session: Session, service: str) -> Answer[health_pb2.HealthCheckResponse]:
    return await session.call(CHECK_HEALTH, health_pb2.HealthCheckRequest(service=service))


async def _is_serving(session: Session, service: str) -> None:
    answer = await _health(session, service)
    status = answer.ok().status
    answer.expect(status == health_pb2.HealthCheckResponse.SERVING, "status SERVING")


@cases.case("A plugin serves `grpc.health.v1` for the empty name.")
async def health_is_serving(session: Session) -> None:
    await _is_serving(session, "")


@cases.case("A plugin serves `grpc.health.v1` for the full name of each contract.")
async def health_names_each_contract(session: Session) -> None:
    for service in session.services:
        await _is_serving(session, service)


@cases.case("`grpc.health.v1`: the health of an unknown name is answered with NOT_FOUND.")
async def health_of_unknown_name_is_not_found(session: Session) -> None:
    answer = await _health(session, "no.such.Service")
    answer.refused(grpc.StatusCode.NOT_FOUND)


@cases.case("Field 1 of every response repeats the request's `request_id`.")
async def request_id_is_repeated(session: Session) -> None:
    request = plugin_pb2.GetPluginInfoRequest(context=session.plugin_context())
    answer = await session.call(GET_PLUGIN_INFO, request)
    wanted = request.context.request_id
    answer.expect(answer.ok().request_id == wanted, f"request_id {wanted}")


@cases.case("GetPluginInfo is safe to repeat.")
async def info_stays_the_same(session: Session) -> None:
    for _ in range(_REPETITIONS):
        answer = await session.get_info()
        now, first = plugin_pb2.GetPluginInfoResponse(), plugin_pb2.GetPluginInfoResponse()
        now.CopyFrom(answer.ok())
        first.CopyFrom(session.info)
        # These two have cases of their own.
        for info in (now, first):
            info.ClearField("request_id")
            info.ClearField("instance_id")
        answer.expect(now == first, "the answer of the first call again")


@cases.case("Identity of this start of the plugin's process: a new random value at every start.")
async def instance_id_stays_while_it_runs(session: Session) -> None:
    for _ in range(_REPETITIONS):
        answer = await session.get_info()
        wanted = session.info.instance_id
        answer.expect(answer.ok().instance_id == wanted, f"instance_id {wanted} again")


@cases.case("Calls may come at the same time; each answer repeats the request_id of its request.")
async def concurrent_calls_are_not_mixed_up(session: Session) -> None:
    requests = [
        plugin_pb2.GetPluginInfoRequest(context=session.plugin_context())
        for _ in range(_CONCURRENT)
    ]
    answers = await asyncio.gather(
        *(session.call(GET_PLUGIN_INFO, request) for request in requests)
    )
    for request, answer in zip(requests, answers, strict=True):
        wanted = request.context.request_id
        answer.expect(
            answer.ok().request_id == wanted, f"request_id {wanted}, with 16 calls at a time"
        )


@cases.case("Deadline of GetPluginInfo: 2 s.")
async def info_is_in_time(session: Session) -> None:
    answer = await session.get_info()
    answer.expect(
        answer.code is not grpc.StatusCode.DEADLINE_EXCEEDED,
        f"an answer within {GET_PLUGIN_INFO.seconds} s",
        f"none after {answer.seconds:.1f} s",
    )


@cases.case("`request_id`: required. INVALID_ARGUMENT / FIELD_INVALID if it is missing.")
async def request_id_is_required(session: Session) -> None:
    answer = await session.call(GET_PLUGIN_INFO, plugin_pb2.GetPluginInfoRequest())
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("`request_id` matches `[!-~]{1,256}`; INVALID_ARGUMENT / FIELD_INVALID otherwise.")
async def malformed_request_id_is_refused(session: Session) -> None:
    for request_id in ("two words", "ü", "r" * 257):
        request = plugin_pb2.GetPluginInfoRequest(context=session.plugin_context())
        request.context.request_id = request_id
        answer = await session.call(GET_PLUGIN_INFO, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("INVALID_ARGUMENT / FIELD_INVALID: `BadRequest` names the field.")
async def bad_request_names_the_field(session: Session) -> None:
    answer = await session.call(GET_PLUGIN_INFO, plugin_pb2.GetPluginInfoRequest())
    answer.expect(
        "context.request_id" in answer.bad_fields,
        "a BadRequest detail that names context.request_id",
        f"{answer.code.name} with BadRequest fields {list(answer.bad_fields)}",
    )


@cases.case("The `domain` of ErrorInfo is the plugin's name.")
async def error_domain_is_the_name(session: Session) -> None:
    answer = await session.call(GET_PLUGIN_INFO, plugin_pb2.GetPluginInfoRequest())
    answer.expect(
        answer.error.domain == session.info.name,
        f"ErrorInfo with the domain {session.info.name}",
        f"{answer.code.name} with the domain {answer.error.domain!r}",
    )


@cases.case("The message of a status is at most 1 KiB, its details together at most 4 KiB.")
async def error_text_is_short(session: Session) -> None:
    request = plugin_pb2.GetPluginInfoRequest(context=session.plugin_context())
    request.context.request_id = "r" * 64 * 1024
    answer = await session.call(GET_PLUGIN_INFO, request)
    message, details = len(answer.message.encode()), answer.details_bytes
    answer.expect(
        answer.code is grpc.StatusCode.INVALID_ARGUMENT
        and message <= _MAX_MESSAGE_BYTES
        and details <= _MAX_DETAILS_BYTES,
        "INVALID_ARGUMENT with a message of at most 1024 bytes and details of at most 4096",
        f"{answer.code.name} with a message of {message} bytes and details of {details}",
    )


@cases.case("Fields that a plugin does not know may appear.")
async def unknown_fields_are_tolerated(session: Session) -> None:
    request = plugin_pb2.GetPluginInfoRequest(context=session.plugin_context())
    answer = await session.call_raw(
        GET_PLUGIN_INFO,
        request.SerializeToString() + _UNKNOWN_FIELD,
        "GetPluginInfo with a field that no version of the contract has",
    )
    answer.ok()


@cases.case("`contracts`: full names of the contract services that the host can use.")
async def unknown_host_contracts_are_tolerated(session: Session) -> None:
    request = plugin_pb2.GetPluginInfoRequest(
        context=session.plugin_context(),
        contracts=["sagentry.api.plugin.v9.FutureService", *session.services],
    )
    answer = await session.call(GET_PLUGIN_INFO, request)
    answer.ok()


@cases.case("A declared method that answers UNIMPLEMENTED is a breach of the contract.")
async def declared_methods_are_implemented(session: Session) -> None:
    for method in CONTRACT_METHODS:
        is_declared = not method.capability or method.capability in session.capabilities
        if method.service in session.services and is_declared:
            answer = await session.call_raw(method, b"", f"an empty {method.name}")
            answer.expect(
                answer.code is not grpc.StatusCode.UNIMPLEMENTED,
                f"{method.name} to be implemented (and this request to be refused)",
            )


@cases.case("Field 1 of every request is a CallContext; INVALID_ARGUMENT if it is missing.")
async def missing_context_is_refused(session: Session) -> None:
    for method in CONTRACT_METHODS:
        is_declared = not method.capability or method.capability in session.capabilities
        if method.service in session.services and is_declared:
            answer = await session.call_raw(method, b"", f"an empty {method.name}")
            if answer.code is not grpc.StatusCode.UNIMPLEMENTED:
                answer.refused(grpc.StatusCode.INVALID_ARGUMENT)


def _report(session: Session) -> plugin_pb2.ReportAttachmentRequest:
    return plugin_pb2.ReportAttachmentRequest(
        context=session.plugin_context(),
        outcome=plugin_pb2.ATTACHMENT_OUTCOME_ACCEPTED,
        contracts=list(session.services),
    )


@cases.case(
    "ReportAttachment tells the plugin what came of the attachment. Safe to repeat.",
    needs=(REPORT_ATTACHMENT.capability,),
)
async def report_is_taken(session: Session) -> None:
    request = _report(session)
    for _ in range(2):
        answer = await session.call(REPORT_ATTACHMENT, request)
        wanted = request.context.request_id
        answer.expect(answer.ok().request_id == wanted, f"request_id {wanted}")


@cases.case(
    "The host calls ReportAttachment also when it refuses the plugin, with each problem in words.",
    needs=(REPORT_ATTACHMENT.capability,),
)
async def refusal_is_taken(session: Session) -> None:
    request = _report(session)
    request.outcome = plugin_pb2.ATTACHMENT_OUTCOME_REFUSED
    problem = request.problems.add()
    problem.reason, problem.message = "PLUGIN_INCOMPATIBLE", "only a test of the judge"
    request.retry_after.FromSeconds(60)
    answer = await session.call(REPORT_ATTACHMENT, request)
    answer.ok()


@cases.case(
    "Enum values that a plugin does not know may appear.",
    needs=(REPORT_ATTACHMENT.capability,),
)
async def unknown_outcome_of_attachment_is_tolerated(session: Session) -> None:
    request = _report(session)
    request.ClearField("outcome")
    # Field 2 with a number of the future: the type itself would refuse it.
    raw = request.SerializeToString() + bytes((0x10, _UNKNOWN_NUMBER))
    answer = await session.call_raw(
        REPORT_ATTACHMENT, raw, f"ReportAttachment with outcome {_UNKNOWN_NUMBER}"
    )
    answer.ok()


@cases.case(
    "ReportAttachment without request_id: INVALID_ARGUMENT / FIELD_INVALID.",
    needs=(REPORT_ATTACHMENT.capability,),
)
async def report_needs_a_request_id(session: Session) -> None:
    request = _report(session)
    request.ClearField("context")
    answer = await session.call(REPORT_ATTACHMENT, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("Reflection is optional; where it is served it lists every contract.")
async def reflection_lists_the_contracts(session: Session) -> None:
    for service in _REFLECTION:
        names = await _reflected(session, service)
        if names is not None:
            break
    else:
        raise SkippedError("the plugin serves no reflection, which is allowed")
    missing = sorted({PLUGIN, *session.services} - names)
    if missing:
        raise CheckFailedError(
            sent="ServerReflectionInfo list_services",
            expected=", ".join(missing),
            got=", ".join(sorted(names)),
        )


async def _reflected(session: Session, service: str) -> set[str] | None:
    """Returns the services that reflection lists, or None where it is not served."""
    stream: grpc.aio.StreamStreamMultiCallable[
        reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse
    ] = session.channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [reflection_pb2.ServerReflectionRequest(list_services="*")]
    try:
        async for response in stream(iter(requests), timeout=2 * session.patience):
            return {item.name for item in response.list_services_response.service}
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise CheckFailedError(
            sent=f"{service} list_services",
            expected="a list of services",
            got=f"{error.code().name}: {(error.details() or '')[:200]}",
        ) from error
    return set()
