"""Where plugins are: targets of the configuration."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from sagentry.server.errors import InvalidInputError

LONGEST_SOCKET_PATH = 107
"""Longest path of a Unix socket in bytes; the system takes no longer one."""

_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class SocketTarget:
    """A Unix socket."""

    path: str

    @property
    def address(self) -> str:
        """The target as gRPC takes it."""
        return f"unix:{self.path}"

    def redacted(self) -> str:
        """The target without secrets."""
        return self.address


@dataclass(frozen=True, slots=True)
class HostTarget:
    """A host by name or number, and its port."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """The target as gRPC takes it."""
        return f"dns:///{self.host}:{self.port}"

    def redacted(self) -> str:
        """The target without secrets."""
        return self.address


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A program that the server launches."""

    arguments: tuple[str, ...]

    def redacted(self) -> str:
        """The target without secrets: arguments may hold some, the program's name does not."""
        more = " …" if len(self.arguments) > 1 else ""
        return f"exec:{self.arguments[0]}{more}"


Target = SocketTarget | HostTarget | CommandTarget


def parse_target(text: str, field: str = "target") -> Target:
    """Reads a target: `unix:/path`, `dns:///host:port` or `exec:command`.

    Raises:
        InvalidInputError: FIELD_INVALID; says how to write it. The text is not repeated: it may hold secrets.
    """
    kind, separator, rest = text.partition(":")
    match kind if separator else "":
        case "unix":
            return _socket_target(rest, field)
        case "dns":
            return _host_target(rest, field)
        case "exec":
            return _command_target(rest, field)
        case _:
            raise InvalidInputError(
                field,
                "must begin with unix:, dns:/// or exec:, for example unix:/run/store.sock, "
                "dns:///store.internal:7500 or exec:my-plugin --flag",
            )


def _socket_target(rest: str, field: str) -> SocketTarget:
    path = rest.removeprefix("//")
    if not path.startswith("/"):
        raise InvalidInputError(
            field, "must name an absolute path, for example unix:/run/store.sock"
        )
    length = len(path.encode())
    if length > LONGEST_SOCKET_PATH:
        raise InvalidInputError(
            field,
            f"names a path of {length} bytes; a Unix socket's has at most {LONGEST_SOCKET_PATH}",
            limit=LONGEST_SOCKET_PATH,
            actual=length,
        )
    return SocketTarget(path)


def _host_target(rest: str, field: str) -> HostTarget:
    match = _HOST_AND_PORT.fullmatch(rest.removeprefix("///")) if rest.startswith("///") else None
    if match is None or not 0 < int(match["port"]) <= _HIGHEST_PORT:
        raise InvalidInputError(
            field,
            "must be dns:///host:port with a port of 1 to 65535, for example dns:///store:7500",
        )
    return HostTarget(match["host"], int(match["port"]))


def _command_target(rest: str, field: str) -> CommandTarget:
    try:
        arguments = tuple(shlex.split(rest))
    except ValueError as error:
        raise InvalidInputError(field, f"cannot be read as a command line: {error}") from error
    if not arguments:
        raise InvalidInputError(field, "must name a program, for example exec:my-plugin --flag")
    return CommandTarget(arguments)
