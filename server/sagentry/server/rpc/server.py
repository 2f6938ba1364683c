"""Makes the gRPC server: its limits, its interceptors, its services."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from sagentry.api.admin.v1 import admin_service_pb2_grpc
from sagentry.api.agent.v1 import agent_service_pb2_grpc
from sagentry.server.ports import Authenticator
from sagentry.server.rpc.event_servicer import EventServicer, add_event_service
from sagentry.server.rpc.health import Health
from sagentry.server.rpc.interceptors.admission import AdmissionInterceptor
from sagentry.server.rpc.interceptors.authentication import AuthenticationInterceptor
from sagentry.server.rpc.interceptors.errors import ErrorInterceptor
from sagentry.server.rpc.interceptors.logging import LoggingInterceptor
from sagentry.server.rpc.interceptors.request_id import RequestIdInterceptor
from sagentry.server.rpc.names import (
    ADMIN_SERVICE,
    AGENT,
    AGENT_SERVICE,
    EVENT,
    EVENT_SERVICE,
    HEALTH_SERVICE,
)
from sagentry.server.rpc.not_yet import answers_not_yet
from sagentry.server.rpc.reflection import add_reflection

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Largest request and largest response."""

_MAX_PENDING_REQUESTS = 100_000

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Otherwise a second server binds the same port without an error and takes half of the calls.
    ("grpc.so_reuseport", 0),
    # A burst of new streams beyond these is dropped, and the client sees a bare CANCELLED.
    ("grpc.server.max_pending_requests", _MAX_PENDING_REQUESTS),
    ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_REQUESTS),
    # Clients whose keepalive is shorter than the default of 5 minutes must not be sent away.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that vanished without a word, a closed laptop, is noticed within a minute and not after hours.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@answers_not_yet(AGENT)
class NoAgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """The agent service of a server without agents."""


@answers_not_yet(EVENT)
class NoEventServicer:
    """The event service of a server without agents."""


@dataclass(frozen=True, slots=True)
class Servicers:
    """What serves each contract.

    Attributes:
        agent: The agent service.
        event: The event service.
        admin: The admin service.
    """

    agent: agent_service_pb2_grpc.AgentServiceServicer
    event: EventServicer | NoEventServicer
    admin: admin_service_pb2_grpc.AdminServiceServicer


def new_server(authenticator: Authenticator, admission: AdmissionInterceptor) -> grpc.aio.Server:
    """Returns a server with all interceptors and without services."""
    return grpc.aio.server(
        interceptors=(
            RequestIdInterceptor(),
            LoggingInterceptor(),
            ErrorInterceptor(),
            AuthenticationInterceptor(authenticator),
            admission,
        ),
        options=SERVER_OPTIONS,
    )


def add_services(server: grpc.aio.Server, servicers: Servicers, health: Health) -> None:
    """Adds the contracts, health and reflection to a server that is not started."""
    agent_service_pb2_grpc.add_AgentServiceServicer_to_server(servicers.agent, server)
    add_event_service(server, servicers.event)
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(servicers.admin, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    add_reflection(server, (AGENT_SERVICE, EVENT_SERVICE, ADMIN_SERVICE, HEALTH_SERVICE))
