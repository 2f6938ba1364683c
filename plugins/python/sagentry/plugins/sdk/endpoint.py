"""Where a plugin listens: a Unix socket that nobody can steal, or a TCP port."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""What the kernel takes; a longer path fails with an error that does not say so."""

_MODE = 0o600
_CONNECT_SECONDS = 1.0


class EndpointError(Exception):
    """The plugin cannot listen there; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen.

    Attributes:
        path: The Unix socket, or None.
        host: Host name or address, IPv6 in brackets; empty for a Unix socket.
        port: TCP port; 0 lets the system choose.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def address(self) -> str:
        """The endpoint as gRPC and `parse_endpoint` take it."""
        return f"unix:{self.path}" if self.path is not None else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Returns the endpoint of `unix:/path` or `host:port`.

    Raises:
        EndpointError: if the text is neither, or the path is too long for a socket.
    """
    if text.startswith("unix:"):
        raw = text.removeprefix("unix:")
        path = Path(raw.removeprefix("//") if raw.startswith("///") else raw)
        if not path.is_absolute():
            raise EndpointError(f"endpoint {text!r}: the path of a Unix socket must be absolute")
        length = len(os.fsencode(path))
        if length > MAX_SOCKET_PATH_BYTES:
            raise EndpointError(
                f"endpoint {text!r}: the path has {length} bytes, "
                f"a socket's may have {MAX_SOCKET_PATH_BYTES}"
            )
        return Endpoint(path=path)
    host, colon, port = text.rpartition(":")
    is_plain = colon and host and "/" not in host and (":" not in host or host.startswith("["))
    if not (is_plain and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise EndpointError(f"endpoint {text!r}: must be `unix:/path` or `host:port`")
    return Endpoint(host=host, port=int(port))


@contextmanager
def reserved(endpoint: Endpoint) -> Iterator[None]:
    """Holds the right to listen there; a socket that a dead plugin left behind is removed.

    Two processes that share a path would not notice: the second steals it and unlinks it when it
    ends. So each holds a lock on `<path>.lock` as long as it listens. The lock file stays.

    Raises:
        EndpointError: if another process listens there, something else has the path, or the
            folder is missing.
    """
    if endpoint.path is None:
        yield
        return
    lock = _lock(endpoint.path)
    try:
        _remove_stale(endpoint.path)
        yield
    finally:
        os.close(lock)


@contextmanager
def private_files() -> Iterator[None]:
    """Makes files that are created meanwhile accessible for their owner only (the whole process)."""
    previous = os.umask(0o777 & ~_MODE)
    try:
        yield
    finally:
        os.umask(previous)


def _lock(path: Path) -> int:
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    except OSError as error:
        raise EndpointError(f"cannot listen on {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise EndpointError(f"cannot listen on {path}: another process listens there") from error
    return lock


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise EndpointError(f"cannot listen on {path}: it exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise EndpointError(f"cannot listen on {path}: {error.strerror or error}") from error
    raise EndpointError(f"cannot listen on {path}: another process listens there")
