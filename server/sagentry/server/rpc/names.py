"""Full names of the services that the server knows."""

from __future__ import annotations

from grpc_health.v1 import health_pb2

from sagentry.api.admin.v1 import admin_service_pb2
from sagentry.api.agent.v1 import agent_service_pb2, event_service_pb2

AGENT = agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"]
EVENT = event_service_pb2.DESCRIPTOR.services_by_name["EventService"]
ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]

AGENT_SERVICE = AGENT.full_name
EVENT_SERVICE = EVENT.full_name
ADMIN_SERVICE = ADMIN.full_name
HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION_V1_SERVICE = "grpc.reflection.v1.ServerReflection"
REFLECTION_V1ALPHA_SERVICE = "grpc.reflection.v1alpha.ServerReflection"
