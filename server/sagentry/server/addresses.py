"""Addresses that the server listens on."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

MAX_UNIX_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux: `sun_path` has 108 bytes, the last of them NUL."""

_TCP_PATTERN = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket.

    Attributes:
        path: Its absolute path, at most 107 bytes.
    """

    path: Path

    def __str__(self) -> str:
        """Returns the address as gRPC and the configuration write it."""
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port of one interface.

    Attributes:
        host: A host name or an address, IPv6 without brackets.
        port: The port; 0 lets the system choose one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Returns the address as gRPC and the configuration write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than `localhost` counts as not."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


ListenAddress = UnixAddress | TcpAddress


def parse_listen_address(text: str) -> ListenAddress:
    """Reads `unix:/absolute/path`, `host:port` or `[v6]:port`.

    Raises:
        ValueError: It is none of these; the text says what is wrong.
    """
    if text.startswith("unix:"):
        return _parse_unix(text.removeprefix("unix:"))
    match = _TCP_PATTERN.fullmatch(text)
    if match is None:
        message = "must be unix:/absolute/path, host:port or [v6-address]:port"
        raise ValueError(message)
    port = int(match["port"])
    if port > _MAX_PORT:
        message = f"the port must be at most {_MAX_PORT}"
        raise ValueError(message)
    if match["v6"] is not None:
        ipaddress.IPv6Address(match["v6"])
    return TcpAddress(host=match["v6"] or match["host"], port=port)


def _parse_unix(path: str) -> UnixAddress:
    if path.startswith("///"):
        path = path[2:]
    if not path.startswith("/") or path.endswith("/"):
        message = "the path of a Unix socket must be absolute and name a file"
        raise ValueError(message)
    length = len(path.encode())
    if length > MAX_UNIX_PATH_BYTES:
        message = (
            f"the path of the Unix socket has {length} bytes and at most {MAX_UNIX_PATH_BYTES} are"
            " possible; choose a shorter data_dir or listen elsewhere"
        )
        raise ValueError(message)
    return UnixAddress(Path(path))
