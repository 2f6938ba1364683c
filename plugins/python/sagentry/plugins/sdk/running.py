"""Serves a plugin: `serve` as its main function, the others inside something larger."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NoReturn, Unpack

from sagentry.plugins.sdk.assembly import Assembly, ServeOptions, assemble
from sagentry.plugins.sdk.binding import Kind, MixedKindsError
from sagentry.plugins.sdk.declaration import DeclarationError
from sagentry.plugins.sdk.endpoint import EndpointError, reserved
from sagentry.plugins.sdk.servers import LoopServer, ThreadServer

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(*servicers: object, **options: Unpack[ServeOptions]) -> None:
    """Serves until SIGTERM or SIGINT: the whole main function of a plugin.

    Call it from the main thread. At the first signal health says NOT_SERVING and calls in flight
    may finish within `stop_budget`; a second signal ends it at once. It returns when the plugin
    has ended in order. Without other logging set up, the log goes to standard error.

    Args:
        *servicers: Instances of the SDK's classes, or of the generated servicer classes (whose
            methods get gRPC's own context as second argument). All methods `def`, each call in a
            thread, or all `async def`, in one event loop.
        **options: See `ServeOptions`; `name` and `version` are required.

    Raises:
        SystemExit: with one line, if what is to be served or the endpoint is wrong.
    """
    logging.basicConfig(level=logging.INFO)
    try:
        assembly = assemble(servicers, options)
        if assembly.kind is Kind.ASYNCHRONOUS:
            asyncio.run(_serve_in_loop(assembly))
        else:
            _serve_in_threads(assembly)
    except (DeclarationError, MixedKindsError, EndpointError) as error:
        raise SystemExit(f"{options.get('name', 'plugin')}: {error}") from error


async def serve_async(*servicers: object, **options: Unpack[ServeOptions]) -> None:
    """Serves an asynchronous plugin until SIGTERM or SIGINT, inside a loop that you run.

    For plugins that open something first: `async with open_database() as db: await
    serve_async(Store(db), …)`. Cancelling it ends the plugin as a signal does.

    Args:
        *servicers: As of `serve`, all methods `async def`.
        **options: See `ServeOptions`.

    Raises:
        DeclarationError: if what is declared contradicts the contract.
        MixedKindsError: if a method is `def`.
        EndpointError: if the plugin cannot listen there.
    """
    assembly = assemble(servicers, options)
    if assembly.kind is not Kind.ASYNCHRONOUS:
        raise MixedKindsError("serve_async needs `async def` methods; use serve")
    await _serve_in_loop(assembly)


@asynccontextmanager
async def serving(*servicers: object, **options: Unpack[ServeOptions]) -> AsyncIterator[str]:
    """Serves meanwhile, without touching signals, and yields the bound address.

    Takes plugins of both kinds; a synchronous one runs in its own threads.

    Args:
        *servicers: As of `serve`.
        **options: See `ServeOptions`.

    Yields:
        `unix:/path` or `host:port`, with the port that the system chose.

    Raises:
        DeclarationError: if what is declared contradicts the contract.
        MixedKindsError: if some methods are `def` and some `async def`.
        EndpointError: if the plugin cannot listen there.
    """
    assembly = assemble(servicers, options)
    if assembly.kind is Kind.ASYNCHRONOUS:
        with reserved(assembly.endpoint):
            server = LoopServer(assembly)
            address = await server.start()
            try:
                yield address
            finally:
                await server.stop(asyncio.Event())
        return
    with reserved(assembly.endpoint):
        threads = ThreadServer(assembly)
        address = threads.start()
        try:
            yield address
        finally:
            await asyncio.to_thread(_stop_threads, threads, assembly, queue.SimpleQueue())


@contextmanager
def serving_in_threads(*servicers: object, **options: Unpack[ServeOptions]) -> Iterator[str]:
    """Serves a synchronous plugin meanwhile, without an event loop, and yields its address.

    Args:
        *servicers: As of `serve`, all methods `def`.
        **options: See `ServeOptions`.

    Yields:
        As `serving`.

    Raises:
        DeclarationError: if what is declared contradicts the contract.
        MixedKindsError: if a method is `async def`.
        EndpointError: if the plugin cannot listen there.
    """
    assembly = assemble(servicers, options)
    if assembly.kind is not Kind.SYNCHRONOUS:
        raise MixedKindsError("serving_in_threads needs `def` methods; use serving")
    with reserved(assembly.endpoint):
        server = ThreadServer(assembly)
        address = server.start()
        try:
            yield address
        finally:
            _stop_threads(server, assembly, queue.SimpleQueue())


async def _serve_in_loop(assembly: Assembly) -> None:
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    with reserved(assembly.endpoint):
        server = LoopServer(assembly)
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
        try:
            _log_start(assembly, await server.start())
            try:
                await stop.wait()
            finally:
                await server.stop(hurry)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
    logger.info("ended")


def _serve_in_threads(assembly: Assembly) -> None:
    # SimpleQueue.put may be called inside a signal handler; setting an Event may deadlock there.
    signals: queue.SimpleQueue[None] = queue.SimpleQueue()
    with reserved(assembly.endpoint):
        server = ThreadServer(assembly)
        previous = {
            number: signal.signal(number, lambda *_: signals.put(None)) for number in _SIGNALS
        }
        try:
            _log_start(assembly, server.start())
            signals.get()
            is_idle = _stop_threads(server, assembly, signals)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    logger.info("ended")
    if not is_idle:
        _abandon_threads()


def _stop_threads(server: ThreadServer, assembly: Assembly, hurry: queue.SimpleQueue[None]) -> bool:
    """Ends in order; returns whether all methods had returned."""
    server.refuse_calls()
    ended: list[bool] = []

    def on_idle() -> None:
        ended.append(True)
        hurry.put(None)

    assembly.in_flight.call_when_idle(on_idle)
    try:
        hurry.get(timeout=assembly.stop_budget.total_seconds())
    except queue.Empty:
        logger.warning("calls still run after %s: cut", assembly.stop_budget)
    is_idle = bool(ended)
    server.close()
    return is_idle


def _abandon_threads() -> NoReturn:
    """Ends the process without its threads, which the interpreter would wait for."""
    logging.shutdown()
    os._exit(0)


def _log_start(assembly: Assembly, address: str) -> None:
    contracts = [contract.service.name for contract, _ in assembly.declaration.served]
    logger.info("%s serves %s on %s", assembly.declaration.name, ", ".join(contracts), address)
