"""Saves an agent's state to its store at the lifecycles, whole or as patches.

The agent never waits for it: patches wait in the journal until the store has acknowledged them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from sagentry.server.agent.ledger import Ledger
from sagentry.server.agent.pipeline import FIRST_PAUSE, LONGEST_PAUSE, PipelineListener
from sagentry.server.domain import codec
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.state import SCHEMA_VERSION, AgentState, Patch, merge_patches
from sagentry.server.errors import LimitExceededError, PluginError, StaleEpochError
from sagentry.server.ports import Clock, PluginCall, StateStore, StateStoreCapabilities

logger = logging.getLogger(__name__)


class StateSaver:
    """The saves of one agent's state.

    Args:
        store: Where the state goes.
        state: The state.
        ledger: Holds the patches that the store has not.
        call: Makes the context of a call from a request_id.
        listener: The agent.
        clock: For pauses.
        capabilities: What the store could do when the agent started.
        max_state_bytes: Largest state that it takes.
        base_size: Size of the stored base in characters; None when the store has no base to append to.
        stored_revision: Revision that the store has; 0 for none.
        patches_size: Size of the stored patches in characters.
    """

    def __init__(
        self,
        store: StateStore,
        state: AgentState,
        ledger: Ledger,
        *,
        call: Callable[[str], PluginCall],
        listener: PipelineListener,
        clock: Clock,
        capabilities: StateStoreCapabilities,
        max_state_bytes: int,
        base_size: int | None,
        stored_revision: int,
        patches_size: int,
    ) -> None:
        """Begins with nothing to save; `run` must be running for anything to be saved."""
        self._store = store
        self._state = state
        self._ledger = ledger
        self._call = call
        self._listener = listener
        self._clock = clock
        self.max_state_bytes = max_state_bytes
        self._capabilities = capabilities
        self._base_size = base_size
        self._stored_revision = stored_revision
        self._patches_size = patches_size
        self._wanted: deque[tuple[Lifecycle, bool]] = deque()
        self._ready = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_degraded = False

    @property
    def is_idle(self) -> bool:
        """Whether every wanted save is acknowledged."""
        return self._idle.is_set()

    @property
    def state_size(self) -> int:
        """Size of the state in characters, as far as it is known without encoding it."""
        unsaved = sum(recorded.size for recorded in self._ledger.unsaved)
        return (self._base_size or 0) + self._patches_size + unsaved

    def want(self, lifecycle: Lifecycle, *, release: bool = False) -> None:
        """Asks for a save. A checkpoint that waits is overtaken by any later save."""
        if self._wanted and self._wanted[-1][0] is Lifecycle.CHECKPOINT:
            self._wanted.pop()
        self._wanted.append((lifecycle, release))
        self._idle.clear()
        self._ready.set()

    async def settle(self, timeout: timedelta) -> bool:
        """Waits until every wanted save is acknowledged, at most `timeout`; says whether it is.

        While the store is degraded it does not wait at all.
        """
        if self._idle.is_set() or self.is_degraded:
            return self._idle.is_set()
        try:
            async with asyncio.timeout(timeout / timedelta(seconds=1)):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self._idle.is_set()

    async def run(self) -> None:
        """Saves until cancelled or fenced."""
        pause = FIRST_PAUSE
        while True:
            await self._ready.wait()
            lifecycle, release = self._wanted[0]
            try:
                await self._save(lifecycle, release=release)
            except StaleEpochError as error:
                self._listener.on_fenced(error)
                return
            except PluginError as error:
                self._degrade(error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            except LimitExceededError:
                # The journal is full: nothing new can be saved before it is drained.
                await self._clock.sleep(LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._recover()
            self._wanted.popleft()
            if not self._wanted:
                self._ready.clear()
                self._idle.set()

    async def _save(self, lifecycle: Lifecycle, *, release: bool) -> None:
        if self._state.revision <= self._stored_revision:
            # A store may take a write under a number that it has for a repetition, or refuse it.
            await self._ledger.bump()
        revision = self._state.revision
        patch_json = None if release else self._patch_json()
        call = self._call(new_id("save"))
        if patch_json is not None and await self._store.append(
            call,
            expected_revision=self._stored_revision,
            revision=revision,
            patch_json=patch_json,
        ):
            self._patches_size += len(patch_json)
        else:
            # The state may have grown while the store was asked: save what it is now, under that number.
            revision = self._state.revision
            state_json = codec.to_json(self._state, AgentState)
            await self._store.persist(
                self._call(new_id("save")),
                lifecycle=lifecycle,
                state_json=state_json,
                schema_version=SCHEMA_VERSION,
                revision=revision,
                release=release,
            )
            self._base_size, self._patches_size = len(state_json), 0
        self._stored_revision = revision
        self._ledger.acknowledge_state(revision)

    def _patch_json(self) -> str | None:
        """Returns the patch that brings the store up to date; None when a full state is better."""
        if self._base_size is None or not self._capabilities.append_state:
            return None
        patch = merge_patches(recorded.patch for recorded in self._ledger.unsaved)
        if patch is None:
            return None
        text = codec.to_json(patch, Patch)
        return None if self._patches_size + len(text) > self._base_size else text

    def _degrade(self, error: PluginError) -> None:
        if not self.is_degraded:
            self.is_degraded = True
            logger.warning(
                "state store fails, patches wait in the journal",
                extra={"plugin": error.plugin, "reason": error.reason},
            )
            self._listener.on_degraded(error)

    def _recover(self) -> None:
        if self.is_degraded:
            self.is_degraded = False
            logger.info("state store works again", extra={"plugin": self._store.plugin})
            self._listener.on_recovered()
