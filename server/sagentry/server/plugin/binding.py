"""What a facade needs of the plugin host: one contract of one plugin, and one way to call it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.server.domain.plugins import PluginIdentity
from sagentry.server.errors import PluginError

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


class ContractViolation(Exception):  # noqa: N818 - what the plugin did, in words for people
    """A plugin's answer breaks its contract. The host makes a PLUGIN_FAULT of it."""


class Binding(Protocol):
    """One contract of one configured plugin.

    Attributes:
        plugin: Name of the plugin in the configuration.
    """

    plugin: str

    @property
    def declared(self) -> plugin_pb2.Contract:
        """What the attached plugin declared of the contract. Raises PluginError when not attached."""

    @property
    def identity(self) -> PluginIdentity:
        """Who the attached plugin is, with its limits. Raises PluginError when not attached."""

    async def invoke(
        self,
        method: str,
        request: Message,
        response_type: type[ResponseT],
        read: Callable[[ResponseT], T],
        *,
        timeout: timedelta | None = None,
    ) -> T:
        """Calls a method once in the caller's eyes, and reads the answer.

        Args:
            method: Name of the method.
            request: The request with its context; the budget is set by the host.
            response_type: The response's class.
            read: Makes the result of the response; raises ContractViolation when it breaks the contract.
            timeout: What the caller has left; the method's own budget if that is shorter.

        Raises:
            PluginError: The plugin failed; StaleEpochError when ownership is lost.
        """

    def failure(
        self, method: str, *, code: int, reason: str, message: str, facts: dict[str, str]
    ) -> PluginError:
        """Returns what a failure inside an answer means: the same as a status with these facts."""
