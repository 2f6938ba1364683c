"""The connection: its limits, and when a proxy has no say in it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import grpc
import grpc.aio

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Largest message in either direction: states may be that large."""

Option = tuple[str, int | str]


def new_channel(
    target: str,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[Option] = (),
) -> grpc.aio.Channel:
    """Returns a channel to the server; it connects with the first call.

    Args:
        target: For example `unix:/run/sagentry.sock` or `dns:///agents.example.com:7433`.
        credentials: For TLS; None for plain text.
        options: Further channel arguments.
    """
    arguments: list[Option] = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    if is_local(target):
        # With http_proxy in the environment gRPC would ask the proxy for this very machine.
        arguments.append(("grpc.enable_http_proxy", 0))
    arguments.extend(options)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=arguments)
    return grpc.aio.secure_channel(target, credentials, options=arguments)


def is_local(target: str) -> bool:
    """Says whether a target is this machine: a Unix socket or loopback."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    scheme, has_scheme, rest = target.partition(":///")
    if not has_scheme:
        scheme, has_scheme, rest = target.partition(":")
        if scheme not in {"ipv4", "ipv6", "dns"}:
            rest = target
    # A DNS target may name its resolver first: dns://resolver/host.
    host = rest.rpartition("/")[2]
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
