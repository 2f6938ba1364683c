"""Channels to plugins."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

MAX_MESSAGE_BYTES = 32 * 1024 * 1024

_OPTIONS: tuple[tuple[str, int], ...] = (
    # An http_proxy of the environment must not capture calls to this machine.
    ("grpc.enable_http_proxy", 0),
    # Only the host repeats calls: it knows which are safe to repeat, and says so in its log.
    ("grpc.enable_retries", 0),
    # A restarted plugin is used again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Servers refuse pings without calls, and more than one in 5 minutes without calls under way.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A channel and where it leads.

    Attributes:
        address: `unix:/path` or `dns:///host:port`.
        channel: The channel; whoever opened the connection closes it.
    """

    address: str
    channel: grpc.aio.Channel


def connect(address: str) -> Connection:
    """Opens a connection; nothing is sent before the first call."""
    return Connection(address, grpc.aio.insecure_channel(address, options=_OPTIONS))
