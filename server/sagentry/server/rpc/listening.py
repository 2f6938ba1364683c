"""Takes addresses for a server, and says clearly when one cannot be had."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio

from sagentry.server.addresses import ListenAddress, TcpAddress, UnixAddress
from sagentry.server.errors import StartError
from sagentry.server.file_lock import FileLockedError, file_lock

_SOCKET_MODE = 0o600


async def listen(
    server: grpc.aio.Server, addresses: Sequence[ListenAddress], stack: ExitStack
) -> tuple[ListenAddress, ...]:
    """Binds a server that is not started to all addresses.

    Args:
        server: The server.
        addresses: Where to listen.
        stack: Gives Unix sockets back; to be closed after the server has stopped.

    Returns:
        The addresses as bound: port 0 is replaced by the port that the system chose.

    Raises:
        StartError: One of them is in use or cannot be had; names it and the reason.
    """
    bound: list[ListenAddress] = []
    for address in addresses:
        if isinstance(address, UnixAddress):
            stack.enter_context(_unix_socket(server, address))
            bound.append(address)
        else:
            bound.append(await _listen_on_tcp(server, address))
    return tuple(bound)


async def _listen_on_tcp(server: grpc.aio.Server, address: TcpAddress) -> TcpAddress:
    if address.port:
        await _check_tcp(address)
    try:
        return TcpAddress(address.host, server.add_insecure_port(str(address)))
    except RuntimeError as error:
        message = f"cannot listen on {address}"
        raise StartError(message) from error


async def _check_tcp(address: TcpAddress) -> None:
    """Tries the address with a socket of our own.

    gRPC does not say why it fails, and takes a name as bound when one of its addresses is.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        message = f"cannot listen on {address}: {error.strerror}"
        raise StartError(message) from error
    problems: list[OSError] = []
    for family, kind, protocol, _, target in found:
        try:
            _try_bind(family, kind, protocol, target)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"address {address} is in use"
                raise StartError(message) from error
            problems.append(error)
    if len(problems) == len(found):
        message = f"cannot listen on {address}: {problems[0].strerror}"
        raise StartError(message) from problems[0]


def _try_bind(family: int, kind: int, protocol: int, target: tuple[Any, ...]) -> None:
    # Any: the form of an address depends on its family.
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(target)


@contextmanager
def _unix_socket(server: grpc.aio.Server, address: UnixAddress) -> Iterator[None]:
    """Holds a Unix socket for its owner only.

    gRPC would take over a socket that another server listens on, and leaves the socket of a killed
    server where it is. So a lock beside it says whether its server lives.
    """
    path = address.path
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path.with_name(f"{path.name}.lock")))
            _remove_stale(path)
            _bind_unix(server, address)
        except FileLockedError as error:
            message = f"address {address} is in use by another server ({error.holder})"
            raise StartError(message) from error
        except OSError as error:
            message = f"cannot listen on {address}: {error.strerror}"
            raise StartError(message) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        message = f"cannot listen on unix:{path}: there is a file that is no socket"
        raise StartError(message)
    with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
        probe.connect(str(path))
        message = f"address unix:{path} is in use by a program without a lock file"
        raise StartError(message)
    path.unlink()


def _bind_unix(server: grpc.aio.Server, address: UnixAddress) -> None:
    # The socket is made by bind: the mask leaves no moment in which others could connect.
    mask = os.umask(0o777 & ~_SOCKET_MODE)
    try:
        server.add_insecure_port(str(address))
    except RuntimeError as error:
        message = f"cannot listen on {address}"
        raise StartError(message) from error
    finally:
        os.umask(mask)
    address.path.chmod(_SOCKET_MODE)
