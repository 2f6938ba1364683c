"""What all work towards a store shares: attempts, pauses, being degraded, what is refused for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from sagentry.server.errors import LimitExceededError, PluginError, StaleEpochError
from sagentry.server.ports import Clock

logger = logging.getLogger(__name__)

FAULTS_BEFORE_QUARANTINE = 3
"""What causes this many breaches of the contract is set aside, and the next goes on."""

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=5)

RETRYABLE = frozenset({"PLUGIN_UNAVAILABLE", "PLUGIN_TIMEOUT"})


class StoreListener(Protocol):
    """What work towards a store tells its agent. All methods return at once."""

    def on_degraded(self, error: PluginError) -> None:
        """The store fails; what is for it waits."""

    def on_recovered(self, plugin: str) -> None:
        """The store works again."""

    def on_fenced(self, error: StaleEpochError) -> None:
        """Another server owns the conversation. Nothing more is sent."""


class StoreLink:
    """One agent's link to one store.

    Args:
        plugin: Name of the store's plugin.
        listener: The agent.
        clock: For pauses.
        release: Lets go whoever waits for the store; called when it fails.
    """

    def __init__(
        self,
        plugin: str,
        listener: StoreListener,
        clock: Clock,
        *,
        release: Callable[[], None],
    ) -> None:
        """Begins with a store that works."""
        self.is_degraded = False
        self._plugin = plugin
        self._listener = listener
        self._clock = clock
        self._release = release
        self._faults = 0

    async def run(self, ready: asyncio.Event, step: Callable[[], Awaitable[None]]) -> None:
        """Does a step whenever there is something to do, until cancelled or fenced."""
        pause = FIRST_PAUSE
        while True:
            await ready.wait()
            try:
                await step()
            except StaleEpochError as error:
                self._listener.on_fenced(error)
                return
            except LimitExceededError:
                # The journal is full: what needs a record waits until there is room.
                await self._clock.sleep(LONGEST_PAUSE)
            except PluginError as error:
                self._degrade(error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                self._recover()

    def progressed(self) -> None:
        """Notes that the store took something: what is in front now has caused no faults."""
        self._faults = 0

    def is_final(self, error: PluginError) -> bool:
        """Says whether what is in front is to be set aside: refused for good, or a repeated fault."""
        if isinstance(error, StaleEpochError) or error.reason in RETRYABLE:
            return False
        if error.reason == "PLUGIN_FAULT":
            self._faults += 1
            if self._faults < FAULTS_BEFORE_QUARANTINE:
                return False
        self._faults = 0
        return True

    def own_fault(self, error: Exception, method: str) -> PluginError:
        """Takes what our own code raised for a fault, so that one write cannot end the agent."""
        logger.error("a call of a store broke", extra={"plugin": self._plugin}, exc_info=error)
        return PluginError(
            "PLUGIN_FAULT",
            "the call broke inside the server",
            plugin=self._plugin,
            method=method,
            elapsed=timedelta(0),
            budget=timedelta(0),
        )

    def _degrade(self, error: PluginError) -> None:
        self._release()
        if not self.is_degraded:
            self.is_degraded = True
            logger.warning(
                "a store fails, what is for it waits in the journal",
                extra={"plugin": error.plugin, "reason": error.reason},
            )
            self._listener.on_degraded(error)

    def _recover(self) -> None:
        if self.is_degraded:
            self.is_degraded = False
            logger.info("a store works again", extra={"plugin": self._plugin})
            self._listener.on_recovered(self._plugin)
