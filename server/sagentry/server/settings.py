"""Settings of the server: what may be set, in which unit, and what holds when it is not set."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
)

from sagentry.server.addresses import ListenAddress, TcpAddress, UnixAddress, parse_listen_address
from sagentry.server.domain.ids import ID_PATTERN

SOCKET_NAME = "sagentry.sock"
"""Name of the default Unix socket in the data folder."""

DEFAULT_TCP_ADDRESS = TcpAddress("127.0.0.1", 7433)
"""Where the server listens beside its Unix socket unless `listen` is set."""

_DURATION_PATTERN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_LONGEST_DURATION = timedelta(days=365)


def parse_duration(value: object) -> timedelta:
    """Reads a duration such as `500ms`, `30s`, `5m` or `1h`.

    Raises:
        ValueError: The text is not a duration, or longer than a year. A bare number is refused:
            nobody can see its unit.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        message = "must be a duration with its unit, for example 500ms, 30s or 5m"
        raise ValueError(message)
    number = float(match["number"])
    if number > _LONGEST_DURATION / _UNITS[match["unit"]]:
        message = "must be at most a year"
        raise ValueError(message)
    return number * _UNITS[match["unit"]]


def _listen_address(value: object, info: ValidationInfo) -> ListenAddress:
    if isinstance(value, (UnixAddress, TcpAddress)):
        address: ListenAddress = value
    elif isinstance(value, str):
        address = parse_listen_address(value)
    else:
        message = "must be text, for example 127.0.0.1:7433"
        raise ValueError(message)  # noqa: TRY004 pydantic takes only ValueError for bad input
    is_exposed = isinstance(address, TcpAddress) and not address.is_loopback
    if is_exposed and not info.data.get("insecure", False):
        message = (
            f"{address} can be reached from other machines, and there is no TLS and no"
            " authentication; listen on loopback, or set insecure"
        )
        raise ValueError(message)
    return address


def _default_listen(data: dict[str, Any]) -> tuple[str, ...]:
    # An invalid data_dir is missing here and reported by itself. The addresses go through the same
    # check as explicit ones, so that a data folder with too long a path is refused.
    sockets = (f"unix:{data['data_dir'] / SOCKET_NAME}",) if "data_dir" in data else ()
    return (*sockets, str(DEFAULT_TCP_ADDRESS))


def _at_least_one(
    addresses: tuple[ListenAddress, ...],
) -> tuple[ListenAddress, ...]:
    if not addresses:
        message = "must name at least one address"
        raise ValueError(message)
    return addresses


def _data_dir(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        message = "the home folder is not known; give an absolute path"
        raise ValueError(message) from error


def _plugin_name(name: str) -> str:
    if ID_PATTERN.fullmatch(name) is None:
        message = "a plugin's name must be 1 to 256 characters in the range ! to ~"
        raise ValueError(message)
    return name


def _profile_name(name: str) -> str:
    if ID_PATTERN.fullmatch(name) is None:
        message = "a profile's name must be 1 to 256 characters in the range ! to ~"
        raise ValueError(message)
    return name


def _without_repetition(contracts: tuple[Contract, ...]) -> tuple[Contract, ...]:
    if len(set(contracts)) != len(contracts):
        message = "names a contract twice"
        raise ValueError(message)
    return contracts


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
"""A span of time, written as `500ms`, `30s`, `5m` or `1h`."""


class Contract(enum.StrEnum):
    """What a plugin can be asked for."""

    AGENT_PERSISTENCE = "agent_persistence"
    DISPLAY_MESSAGE_PERSISTENCE = "display_message_persistence"
    MESSAGE_PREPROCESSOR = "message_preprocessor"


class _Section(BaseModel):
    # Errors never repeat what was given: it may be a secret.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )


class PluginSettings(_Section):
    """One plugin."""

    target: str = Field(min_length=1, repr=False)
    """Where it is: `unix:/path`, `dns:///host:port` or `exec:command`. Required. Not shown in
    logs: a command line may hold secrets."""

    contracts: Annotated[tuple[Contract, ...], AfterValidator(_without_repetition)] = Field(
        min_length=1
    )
    """What it is used for. Required, at least one."""


class ProfileSettings(_Section):
    """One profile: what an agent is started from."""

    model: str = Field(default="script:demo", min_length=1)
    """The model: `anthropic:MODEL` or `openai:MODEL` ([models](models.md)), `script:demo`, or
    `script:FILE` for a script of your own; a relative path starts at the folder of the configuration
    file. Default: script:demo."""

    base_url: str = Field(default="", pattern="^(https?://.+)?$")
    """Where the provider's protocol is spoken. Default: the provider's own address."""

    api_key_env: str = Field(default="", pattern="^[A-Za-z_0-9]*$")
    """Environment variable that has the provider's key. Default: ANTHROPIC_API_KEY or
    OPENAI_API_KEY."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    """How much chance there is in answers, 0 to 2. Default: the provider's."""

    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    """Most tokens of one answer, thinking included. Default: 8192 with anthropic, which demands a
    limit; none with openai."""

    thinking_tokens: int = Field(default=0, ge=0, le=1_000_000)
    """Tokens of an answer for thinking, with anthropic: 0 for none, else 1024 or more and less than
    `max_tokens`. Default: 0."""

    reasoning_effort: str = Field(default="", pattern="^[a-z]*$")
    """How much the model reasons, with openai, in its own word, for example `low`. Default: the
    model's."""

    system_prompt: str = Field(default="", repr=False)
    """Instructions for the model. Default: none."""

    tools: tuple[str, ...] = ()
    """Names of installed tools that the model may call. Default: none."""

    max_turns: int = Field(default=50, ge=1, le=1000)
    """Most model calls of one run, 1 to 1000. Default: 50."""

    model_retries: int = Field(default=2, ge=0, le=10)
    """How often a model call is repeated that failed before it said anything, if the failure may pass:
    overload, rate limit, no connection. Default: 2."""

    fallbacks: tuple[str, ...] = ()
    """Profiles whose models are asked in this one's place, in order, when a call has failed for good
    before it said anything. Default: none."""

    inactivity_timeout: Duration = timedelta(minutes=5)
    """How long an agent stays awake after its last message, run or TouchAgent; it never sleeps during
    a run, and a message wakes it. `0s` switches it off. Default: 5m."""

    unwatched_timeout: Duration = timedelta(0)
    """How long an agent whose last run was completed stays awake when no stream with a `viewer` is
    open. `0s` switches it off. Default: 0s."""


class JournalSettings(_Section):
    """The server's own record of what is accepted and not yet stored by a plugin."""

    fsync: bool = True
    """Waits for the disk before a client is answered and before a tool starts. Without it a power
    cut may take the last moments; a crash of the process alone does not. Default: true."""

    max_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024 * 1024)
    """Most bytes of entries; when they are used up, new messages are refused and nothing accepted is
    dropped. Default: 1073741824 (1 GiB)."""


class LimitSettings(_Section):
    """Limits of the whole server."""

    live_agents: int = Field(default=1000, ge=1)
    """Most agents in memory; one more is refused. Default: 1000."""

    streams_per_caller: int = Field(default=10_000, ge=1)
    """Most streams of events that one caller may have open; one more is refused. Default: 10000."""

    event_log_bytes: int = Field(default=1024 * 1024, ge=64 * 1024)
    """What the event log of one agent keeps for readers that come back. Default: 1048576 (1 MiB)."""


DEFAULT_PROFILES = {
    "default": ProfileSettings(
        system_prompt="You are a helpful assistant.", tools=("current_time", "calculate")
    )
}
"""Profiles of a server whose configuration names none: the demo model with the demo tools."""


class Settings(_Section):
    """All settings. Order matters: `listen` is checked against what is above it."""

    data_dir: Annotated[Path, AfterValidator(_data_dir)] = Path("~/.local/share/sagentry")
    """Folder of the server's own data; made with mode 0700. A relative path starts at the working
    folder. Default: `sagentry` in the XDG data home."""

    insecure: bool = False
    """Allows listening off loopback without TLS and authentication. Default: false."""

    listen: Annotated[
        tuple[Annotated[ListenAddress, BeforeValidator(_listen_address)], ...],
        AfterValidator(_at_least_one),
    ] = Field(default_factory=_default_listen)  # type: ignore[arg-type]  # validated
    """Where to listen: `unix:/absolute/path`, `host:port`, `[v6]:port`; port 0 lets the system
    choose. Default: `sagentry.sock` in the data folder, and 127.0.0.1:7433."""

    plugins: Annotated[
        Mapping[Annotated[str, AfterValidator(_plugin_name)], PluginSettings],
        AfterValidator(MappingProxyType),
    ] = Field(default_factory=dict)
    """The plugins by name. Default: one that keeps states and messages in a SQLite file in the data
    folder."""

    profiles: Annotated[
        Mapping[Annotated[str, AfterValidator(_profile_name)], ProfileSettings],
        AfterValidator(MappingProxyType),
    ] = Field(default_factory=lambda: dict(DEFAULT_PROFILES))
    """The profiles by name; `default` is what an agent gets that asks for none. Default: `default`,
    with the demo model and the demo tools."""

    journal: JournalSettings = JournalSettings()
    """The journal."""

    limits: LimitSettings = LimitSettings()
    """Limits of the whole server."""

    settle_timeout: Annotated[Duration, Field(ge=timedelta(0), le=timedelta(seconds=60))] = (
        timedelta(milliseconds=500)
    )
    """How long a reply and the end of a run wait for the stores before they go out with `unsaved`
    above 0. Default: 500ms."""

    drain_timeout: Annotated[Duration, Field(ge=timedelta(0))] = timedelta(seconds=25)
    """Longest time from SIGTERM to the end of the process. Default: 25s, so that it is over before
    the 30 s after which container platforms kill."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged. Default: info."""

    log_format: Literal["text", "json"] = "text"
    """Form of the log lines on stderr. Default: text."""


SECTIONS: dict[str, type[BaseModel]] = {"journal": JournalSettings, "limits": LimitSettings}
"""Settings that are a group of settings."""

MAPS: dict[str, type[BaseModel]] = {"plugins": PluginSettings, "profiles": ProfileSettings}
"""Settings that are groups of settings by name."""
