"""The two gRPC servers that a plugin may run on: threads, or one event loop.

Both end in the same way: health says NOT_SERVING, new calls are refused, calls in flight may finish
within the budget, and streams that never end by themselves (health, reflection) are cut.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from sagentry.plugins.sdk.assembly import Assembly
from sagentry.plugins.sdk.endpoint import Endpoint, EndpointError, private_files

logger = logging.getLogger(__name__)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ThreadServer:
    """Serves a synchronous plugin. Start and stop it from one thread."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._workers = ThreadPoolExecutor(assembly.threads, thread_name_prefix="plugin")
        # Health has threads of its own: a plugin whose threads are all busy is not dead.
        self._health_workers = ThreadPoolExecutor(1, thread_name_prefix="health")
        self._health = health.HealthServicer(
            experimental_non_blocking=True, experimental_thread_pool=self._health_workers
        )
        self._server = grpc.server(self._workers, options=assembly.options)
        self._server.add_generic_rpc_handlers(assembly.handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def start(self) -> str:
        """Listens; returns the address.

        Raises:
            EndpointError: if the address is in use.
        """
        address = _listen(self._server, self._assembly)
        self._server.start()
        for name in self._assembly.health_names:
            self._health.set(name, _SERVING)
        return address

    def refuse_calls(self) -> None:
        """Refuses new calls from now on; returns at once."""
        self._health.enter_graceful_shutdown()
        self._server.stop(self._assembly.stop_budget.total_seconds())

    def close(self) -> None:
        """Cuts what is still open. Returns when the server has ended; methods may still run."""
        self._server.stop(None).wait()
        self._workers.shutdown(wait=False)
        self._health_workers.shutdown(wait=False)


class LoopServer:
    """Serves an asynchronous plugin in the running event loop."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=assembly.options)
        self._server.add_generic_rpc_handlers(assembly.handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self) -> str:
        """Listens; returns the address.

        Raises:
            EndpointError: if the address is in use.
        """
        address = _listen(self._server, self._assembly)
        await self._server.start()
        for name in self._assembly.health_names:
            await self._health.set(name, _SERVING)
        return address

    async def stop(self, hurry: asyncio.Event) -> None:
        """Ends in order. Methods that outlast the budget are cancelled.

        Args:
            hurry: Ends the budget early when set.
        """
        await self._health.enter_graceful_shutdown()
        budget = self._assembly.stop_budget.total_seconds()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._server.stop(budget))
            await asyncio.sleep(0)  # it refuses new calls from now on
            self._assembly.in_flight.call_when_idle(hurry.set)
            try:
                async with asyncio.timeout(budget):
                    await hurry.wait()
            except TimeoutError:
                logger.warning("calls still run after %s s: cancelled", budget)
            await self._server.stop(None)


class _Listener(Protocol):
    def add_insecure_port(self, address: str) -> int: ...
    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int: ...


def _listen(server: _Listener, assembly: Assembly) -> str:
    endpoint = assembly.endpoint
    is_remote = endpoint.path is None and endpoint.host not in _LOOPBACK
    if is_remote and assembly.credentials is None:
        logger.warning("%s is open to whoever reaches it: no credentials", endpoint.address)
    try:
        with private_files():
            if assembly.credentials is None:
                port = server.add_insecure_port(endpoint.address)
            else:
                port = server.add_secure_port(endpoint.address, assembly.credentials)
    except RuntimeError as error:
        raise EndpointError(
            f"cannot listen on {endpoint.address}: the address is in use or not of this machine"
        ) from error
    if endpoint.path is not None:
        return endpoint.address
    return Endpoint(host=endpoint.host, port=port).address
