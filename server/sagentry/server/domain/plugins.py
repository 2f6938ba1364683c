"""What the server knows of its plugins, for operators."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta


class PluginState(enum.Enum):
    """What the server has of a plugin."""

    CONNECTING = "connecting"
    ATTACHED = "attached"
    REFUSED = "refused"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True)
class PluginIdentity:
    """What a plugin says of itself; byte limits are already lowered to the host's own.

    Attributes:
        name: Its own name, for example `com.example.store`.
        version: Its version.
        instance_id: Identity of its process's start.
        max_request_bytes: Largest request that it takes.
        max_response_bytes: Largest response that it sends.
        max_concurrent_calls: Most calls at a time; 0 means no limit.
    """

    name: str
    version: str
    instance_id: str
    max_request_bytes: int
    max_response_bytes: int
    max_concurrent_calls: int


@dataclass(frozen=True, slots=True)
class ContractBinding:
    """A contract that the configuration asks of a plugin.

    Attributes:
        service: Full name of the service.
        bound: Whether the plugin serves it.
        capabilities: Names of its capabilities without prefix, the marker left out.
    """

    service: str
    bound: bool
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginView:
    """A configured plugin at one moment.

    Attributes:
        name: Its name in the configuration.
        target: Its target, without secrets.
        state: What the server has of it.
        state_change_time: When `state` last changed.
        identity: What the plugin says of itself; None until it has attached once.
        contracts: What the configuration asks of it.
        problem: Why it is not attached, one line for people; empty when attached.
        problem_reason: An `ErrorReason` without prefix; empty when attached.
        next_attempt_time: When the server tries again; None when attached.
        process_starts: How often its process was started; 0 unless the target is `exec:`.
    """

    name: str
    target: str
    state: PluginState
    state_change_time: datetime
    identity: PluginIdentity | None
    contracts: tuple[ContractBinding, ...]
    problem: str = ""
    problem_reason: str = ""
    next_attempt_time: datetime | None = None
    process_starts: int = 0


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plugin call that failed. Holds neither content nor credentials.

    Attributes:
        plugin: Name of the plugin in the configuration.
        method: The method, for example `LoadState`.
        time: When it failed.
        reason: An `ErrorReason` without prefix.
        code: The plugin's status code as a number; 0 when it answered OK, but wrongly.
        message: What went wrong, the plugin's own text included, at most 1 KiB.
        elapsed: How long the call took.
        budget: How long it was allowed to take.
        consequence: What the server did about it.
        request_id: The call's request_id.
        command: A `grpcurl` command that repeats the call.
    """

    plugin: str
    method: str
    time: datetime
    reason: str
    code: int
    message: str
    elapsed: timedelta
    budget: timedelta
    consequence: str
    request_id: str
    command: str
