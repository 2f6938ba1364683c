"""Clients that keep their connection alive."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from tests.support.servers import health_stub, served


@pytest.mark.soak
@pytest.mark.timeout(120)
async def test_a_client_with_a_short_keepalive_is_not_sent_away() -> None:
    """Field report 41: pings of an idle client were answered with GOAWAY, too many pings."""
    options = [("grpc.keepalive_time_ms", 12_000), ("grpc.keepalive_permit_without_calls", 1)]
    async with served() as running:
        address = str(running.server.addresses[0])
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            watch = health_stub(channel).Watch(health_pb2.HealthCheckRequest())
            await watch.read()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await watch.read()
