"""Saves an agent's state to its store at the lifecycles, whole or as patches.

The agent never waits for it: patches wait in the journal until the store has acknowledged them. A save
that is refused for good is given up and announced; its patches stay in the journal, because the next save
holds them too and without them the later ones could not be folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sagentry.server.agent.ledger import Ledger
from sagentry.server.agent.store_link import RETRYABLE, StoreLink, StoreListener
from sagentry.server.domain import codec
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.state import SCHEMA_VERSION, AgentState, Patch, merge_patches
from sagentry.server.errors import LimitExceededError, PluginError, StaleEpochError
from sagentry.server.ports import Clock, PluginCall, StateStore, StateStoreCapabilities

PATCH_OVERHEAD = 64
"""What a patch takes in the store's answer beside its text."""


class SaverListener(StoreListener, Protocol):
    """What the saver tells its agent. All methods return at once."""

    def on_state_rejected(self, error: PluginError) -> None:
        """A save was refused for good and given up."""


@dataclass(frozen=True, slots=True)
class _Save:
    """A save that is wanted."""

    lifecycle: Lifecycle
    release: bool

    def followed_by(self, later: _Save | None) -> _Save:
        """Returns the one save that does for both: each holds the whole state of its moment."""
        if later is None:
            return self
        is_checkpoint = later.lifecycle is Lifecycle.CHECKPOINT
        lifecycle = self.lifecycle if is_checkpoint else later.lifecycle
        return _Save(lifecycle, self.release or later.release)


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
        listener: SaverListener,
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
        self.max_state_bytes = max_state_bytes
        self._capabilities = capabilities
        self._base_size = base_size
        self._stored_revision = stored_revision
        self._patches_size = patches_size
        self._under_way: _Save | None = None
        self._wanted: _Save | None = None
        self._was_rejected = False
        self._is_closed = False
        self._ready = asyncio.Event()
        self._settled = asyncio.Event()
        self._link = StoreLink(store.plugin, listener, clock, release=self._settled.set)

    @property
    def is_degraded(self) -> bool:
        """Whether the store fails."""
        return self._link.is_degraded

    @property
    def is_saved(self) -> bool:
        """Whether every wanted save is acknowledged."""
        return self._under_way is None and self._wanted is None and not self._was_rejected

    @property
    def state_size(self) -> int:
        """Size of the state in characters, as far as it is known without encoding it; never too low."""
        return (self._base_size or 0) + self._patches_size + self._ledger.unsaved_size

    def measured_size(self) -> int:
        """Size of the state in characters; costs as much as encoding it."""
        return len(codec.to_json(self._state, AgentState))

    def want(self, lifecycle: Lifecycle, *, release: bool = False) -> None:
        """Asks for a save. One that waits is overtaken by any later one."""
        save = _Save(lifecycle, release)
        self._wanted = save if self._wanted is None else self._wanted.followed_by(save)
        self._settled.clear()
        self._ready.set()

    def close(self) -> None:
        """Saves nothing more and lets go who waits; what is not saved stays in the journal."""
        self._is_closed = True
        self._settled.set()

    async def settle(self, timeout: timedelta) -> bool:
        """Waits until every wanted save is acknowledged, at most `timeout`; says whether it is.

        While the store is degraded it does not wait at all.
        """
        is_idle = self._under_way is None and self._wanted is None
        if is_idle or self.is_degraded or self._is_closed:
            return self.is_saved
        self._settled.clear()
        try:
            async with asyncio.timeout(timeout / timedelta(seconds=1)):
                await self._settled.wait()
        except TimeoutError:
            pass
        return self.is_saved

    async def run(self) -> None:
        """Saves until cancelled or fenced."""
        await self._link.run(self._ready, self._step)

    async def _step(self) -> None:
        """Does the save that failed before, or the next that is wanted."""
        wanted, self._wanted = self._wanted, None
        save = self._under_way.followed_by(wanted) if self._under_way else wanted
        self._under_way = save
        if save is not None:
            await self._try(save)
        self._under_way = None
        if self._wanted is None:
            self._ready.clear()
            self._settled.set()

    async def _try(self, save: _Save) -> None:
        """Saves, or gives up what is refused for good."""
        try:
            await self._save(save)
        except LimitExceededError:
            raise
        except PluginError as error:
            failure = error
        except Exception as fault:  # noqa: BLE001 - logged; one save must not end the agent
            failure = self._link.own_fault(fault, "PersistState")
        else:
            self._was_rejected = False
            self._link.progressed()
            return
        if not self._link.is_final(failure):
            raise failure
        self._was_rejected = True
        # Whatever the store has now, the next save does not build on it.
        self._base_size = None
        self._listener.on_state_rejected(failure)

    async def _save(self, save: _Save) -> None:
        if self._state.revision <= self._stored_revision:
            # A store may take a write under a number that it has for a repetition, or refuse it.
            await self._ledger.bump()
        revision = self._state.revision
        patch_json = None if save.release else self._patch_json()
        if patch_json is not None and await self._append(revision, patch_json):
            self._patches_size += len(patch_json) + PATCH_OVERHEAD
        else:
            # The state may have grown while the store was asked: save what it is now, under that number.
            revision = self._state.revision
            state_json = codec.to_json(self._state, AgentState)
            await self._store.persist(
                self._call(new_id("save")),
                lifecycle=save.lifecycle,
                state_json=state_json,
                schema_version=SCHEMA_VERSION,
                revision=revision,
                release=save.release,
            )
            self._base_size, self._patches_size = len(state_json), 0
        self._stored_revision = revision
        self._ledger.acknowledge_state(revision)

    async def _append(self, revision: int, patch_json: str) -> bool:
        """Adds a patch; False when the store needs the whole state, or refuses the patch for good."""
        try:
            return await self._store.append(
                self._call(new_id("save")),
                expected_revision=self._stored_revision,
                revision=revision,
                patch_json=patch_json,
            )
        except PluginError as error:
            if isinstance(error, StaleEpochError) or error.reason in RETRYABLE:
                raise
            self._base_size = None
            return False

    def _patch_json(self) -> str | None:
        """Returns the patch that brings the store up to date; None when a full state is better."""
        if self._base_size is None or not self._capabilities.append_state:
            return None
        patch = merge_patches(recorded.patch for recorded in self._ledger.unsaved)
        if patch is None:
            return None
        text = codec.to_json(patch, Patch)
        patches = self._patches_size + len(text) + PATCH_OVERHEAD
        # The store answers base and patches together, and that must fit into one message.
        is_too_much = patches > self._base_size or self._base_size + patches > self.max_state_bytes
        return None if is_too_much else text
