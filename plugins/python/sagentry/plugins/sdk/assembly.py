"""Turns servicers and options into everything that a gRPC server needs to serve a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Required, TypedDict

import grpc
from grpc_health.v1 import health_pb2

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.sdk.binding import BoundMethod, Kind, bind, kind_of, methods_of
from sagentry.plugins.sdk.contracts import PLUGIN_SERVICE, Capabilities
from sagentry.plugins.sdk.declaration import Declaration, declare
from sagentry.plugins.sdk.endpoint import Endpoint, EndpointError, parse_endpoint
from sagentry.plugins.sdk.environment import ENDPOINT_VARIABLE, endpoint_from_environment
from sagentry.plugins.sdk.in_flight import InFlight
from sagentry.plugins.sdk.plugin_service import AttachmentHook, plugin_service
from sagentry.plugins.sdk.reflection import reflection_handlers

HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
DEFAULT_THREADS = 32
DEFAULT_STOP_BUDGET = timedelta(seconds=4)
"""The host kills a plugin that it has launched 5 s after SIGTERM."""


class ServeOptions(TypedDict, total=False):
    """How a plugin is served.

    Attributes:
        name: Required. Reverse-domain name, 1 to 63 characters of `[a-z0-9.-]`.
        version: Required. For people.
        capabilities: What no method shows, such as FENCING or a state view: one
            `…Capabilities` message per contract. What methods show is declared by itself.
        limits: What the plugin can take. Unset sizes mean 32 MiB.
        endpoint: `unix:/path` or `host:port`; port 0 lets the system choose. Without it the
            variable SAGENTRY_PLUGIN_ENDPOINT says where, as for launched plugins.
        on_attachment: Told what came of each attachment.
        threads: Calls at a time of a synchronous plugin; more wait. Default 32.
        stop_budget: How long calls may take to finish when the plugin ends. Default 4 s.
        credentials: TLS of a TCP endpoint. Without it the endpoint is open to whoever reaches it.
    """

    name: Required[str]
    version: Required[str]
    capabilities: Sequence[Capabilities]
    limits: plugin_pb2.PluginLimits | None
    endpoint: str | None
    on_attachment: AttachmentHook | None
    threads: int
    stop_budget: timedelta
    credentials: grpc.ServerCredentials | None


@dataclass(frozen=True, slots=True)
class Assembly:
    """A plugin that is ready to be served.

    Attributes:
        declaration: What it says of itself.
        kind: How its methods run.
        endpoint: Where it listens.
        handlers: All of its services but health.
        health_names: The names whose health it answers for.
        in_flight: Its calls.
        options: Arguments of the gRPC server.
        threads: See `ServeOptions`.
        stop_budget: See `ServeOptions`.
        credentials: See `ServeOptions`.
    """

    declaration: Declaration
    kind: Kind
    endpoint: Endpoint
    handlers: tuple[grpc.GenericRpcHandler, ...]
    health_names: tuple[str, ...]
    in_flight: InFlight
    options: tuple[tuple[str, int], ...]
    threads: int
    stop_budget: timedelta
    credentials: grpc.ServerCredentials | None


def assemble(servicers: Sequence[object], options: ServeOptions) -> Assembly:
    """Checks everything that can be checked before listening.

    Raises:
        DeclarationError: if what is declared contradicts the contract.
        MixedKindsError: if some methods are `def` and some `async def`.
        EndpointError: if no endpoint is given, or it is malformed.
    """
    declaration = declare(
        servicers,
        name=options["name"],
        version=options["version"],
        capabilities=options.get("capabilities", ()),
        limits=options.get("limits"),
    )
    methods: dict[str, object] = {}
    for contract, servicer in declaration.served:
        methods |= methods_of(contract, servicer)
    kind = kind_of(methods)
    services = {
        PLUGIN_SERVICE.full_name: plugin_service(
            declaration, kind=kind, on_attachment=options.get("on_attachment")
        )
    }
    for contract, servicer in declaration.served:
        services[contract.service.full_name] = bind(
            contract, servicer, plugin=declaration.name, kind=kind
        )
    in_flight = InFlight()
    files = [PLUGIN_SERVICE.file, *(contract.service.file for contract, _ in declaration.served)]
    limits = declaration.info.limits
    return Assembly(
        declaration=declaration,
        kind=kind,
        endpoint=_endpoint(options.get("endpoint")),
        handlers=(
            *(_generic(service, each, in_flight, kind) for service, each in services.items()),
            *reflection_handlers([*services, HEALTH_SERVICE], files, kind=kind),
        ),
        health_names=("", *services),
        in_flight=in_flight,
        options=(
            # Two servers on one port would not notice each other.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limits.max_request_bytes),
            ("grpc.max_send_message_length", limits.max_response_bytes),
            # The host pings every 60 s; the default tolerates one ping in 5 minutes.
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ),
        threads=options.get("threads", DEFAULT_THREADS),
        stop_budget=options.get("stop_budget", DEFAULT_STOP_BUDGET),
        credentials=options.get("credentials"),
    )


def _generic(
    service: str, methods: Sequence[BoundMethod], in_flight: InFlight, kind: Kind
) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        service,
        {
            method.descriptor.name: method.rpc_handler(in_flight.counting(method.handler, kind))
            for method in methods
        },
    )


def _endpoint(given: str | None) -> Endpoint:
    text = given or endpoint_from_environment()
    if text is None:
        raise EndpointError(f"no endpoint: pass `endpoint` or set {ENDPOINT_VARIABLE}")
    return parse_endpoint(text)
