"""Starting an agent from what its store and the journal hold. Source: design §5.0.

Order: drain the conversation's journal under the epoch it was written with, claim and load the state, fold
the store's patches and then the journal's newer ones, repair, open the display store, tell readers. An
agent never runs on a state that its journal is ahead of.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sagentry.server.agent.agent import Agent
from sagentry.server.agent.core import AgentCore, Profile, request_for
from sagentry.server.agent.ledger import DISPLAY, PATCH, Ledger, QueuedWrite, RecordedPatch
from sagentry.server.agent.pipeline import DisplayPipeline
from sagentry.server.agent.repair import Repair, repair
from sagentry.server.agent.saver import PATCH_OVERHEAD, StateSaver
from sagentry.server.agent.store_link import FIRST_PAUSE
from sagentry.server.agent.streams import Streams
from sagentry.server.domain import codec
from sagentry.server.domain.commands import AgentOptions
from sagentry.server.domain.events import AgentStarted, RunEnded, StatusChanged
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.runs import AgentStatus, Lifecycle, Run, RunEnd
from sagentry.server.domain.scope import AgentKey, ConversationKey, Scope
from sagentry.server.domain.state import (
    SCHEMA_VERSION,
    AgentState,
    OptionsSet,
    Patch,
    StartOptions,
)
from sagentry.server.domain.writes import WriteOutcome
from sagentry.server.errors import (
    CorruptDataError,
    InvalidStateError,
    PluginError,
    StaleEpochError,
    UnavailableError,
)
from sagentry.server.model_ports import ToolExecutor
from sagentry.server.ports import (
    Clock,
    DisplayStore,
    Journal,
    JournalEntry,
    PluginCall,
    StateStore,
    StoredState,
    WriteRequest,
)

logger = logging.getLogger(__name__)


HOLDING = (AgentStatus.CANCELLED, AgentStatus.ERROR, AgentStatus.PAUSED)
"""In these an agent keeps what is queued until it is told to go on."""


@dataclass(frozen=True, slots=True)
class AgentServices:
    """What every agent of the server uses.

    Attributes:
        owner_id: The server, as owner of conversations; stable over its restarts.
        journal: The journal.
        state_store: Where states go.
        display_store: Where rows go.
        executor: Runs tools.
        clock: The time.
        profile: Finds a profile by name. Raises InvalidInputError PROFILE_UNKNOWN.
        streams: The logs of agents.
        settle_timeout: How long replies and run ends wait for stores.
    """

    owner_id: str
    journal: Journal
    state_store: StateStore
    display_store: DisplayStore
    executor: ToolExecutor
    clock: Clock
    profile: Callable[[str], Profile]
    streams: Streams
    settle_timeout: timedelta


@dataclass(slots=True)
class _Drained:
    """Collects what the drain stored, to be announced when the agent's log exists."""

    outcomes: list[tuple[QueuedWrite, WriteOutcome]] = field(default_factory=list)
    rejected: list[tuple[QueuedWrite, PluginError]] = field(default_factory=list)

    def on_outcome(self, write: QueuedWrite, outcome: WriteOutcome) -> None:
        self.outcomes.append((write, outcome))

    def on_rejected(self, write: QueuedWrite, error: PluginError) -> None:
        self.rejected.append((write, error))

    def on_degraded(self, error: PluginError) -> None:
        """Not told: the start itself fails."""

    def on_recovered(self, plugin: str) -> None:
        """Not told: the start itself fails."""

    def on_fenced(self, error: StaleEpochError) -> None:
        """Not told: `drain` sees the error itself."""


@dataclass(slots=True)
class Folded:
    """A state put together from its store and the journal.

    Attributes:
        state: The state.
        base_size: Size of the stored base; None when nothing is stored.
        patches_size: Size of the stored patches.
        stored_revision: What the store has.
        unsaved: Journal patches that the store has not.
        acknowledged: Journal patches that the store has; their removal was lost in the crash.
        foreign: Journal patches that another owner's writes made worthless.
    """

    state: AgentState
    base_size: int | None
    patches_size: int
    stored_revision: int
    unsaved: list[RecordedPatch]
    acknowledged: list[int]
    foreign: list[int]


class Recovery:
    """Starts one agent.

    Args:
        services: What every agent uses.
        key: The agent.
        scope: Who the start is for.
        options: How the caller wants it started; counts only if nothing is stored.
    """

    def __init__(
        self, services: AgentServices, key: AgentKey, scope: Scope, options: AgentOptions | None
    ) -> None:
        """Begins with nothing done."""
        self._services = services
        self._key = key
        self._scope = scope
        self._options = options or AgentOptions()
        conversation_id = self._options.conversation_id or key.agent_id
        self.conversation = ConversationKey(key.scope, conversation_id)
        self._repair = Repair()
        self._previous_owner = ""
        self._restored = False
        self._drained = _Drained()

    async def build(self) -> Agent:
        """Drains, claims, loads, folds and opens; returns an agent that does not run yet.

        Raises:
            UnavailableError: PLUGIN_BEHIND: the journal cannot be drained now.
            CorruptDataError: STATE_CORRUPT.
            InvalidStateError: STATE_VERSION_UNSUPPORTED.
            InvalidInputError: PROFILE_UNKNOWN.
            PluginError: A store failed.
        """
        services = self._services
        entries = await services.journal.read(self.conversation)
        await self._drain([entry for entry in entries if entry.record.kind == DISPLAY])
        stored = await services.state_store.load(
            self._call(new_id("load"), 0), claim_as=services.owner_id
        )
        folded = fold(stored, entries, services.owner_id)
        if folded.foreign:
            services.journal.set_aside(folded.foreign, "STALE_EPOCH")
        if folded.acknowledged:
            services.journal.remove(folded.acknowledged)
        self._restored = stored.base_json is not None or bool(folded.unsaved)
        self._previous_owner = (
            stored.previous_owner if stored.previous_owner != services.owner_id else ""
        )
        self._repair = repair(folded.state, services.clock.now())
        options = folded.state.options or self._options.options
        profile = services.profile(options.profile)
        if folded.state.options is None:
            self._repair.changes.insert(0, OptionsSet(options))
        counters = await services.display_store.open(self._call(new_id("open"), stored.owner_epoch))
        agent = self._assemble(folded, profile, stored.owner_epoch)
        agent.news.counters = counters
        return agent

    async def announce(self, agent: Agent) -> None:
        """Records the repair and tells readers; the agent's tasks must be running.

        Raises:
            LimitExceededError: JOURNAL_FULL.
        """
        core = agent.core
        self._services.streams.attach(self._key, agent)
        core.publish(AgentStarted(core.profile.name, self._restored, self._previous_owner))
        for write, outcome in self._drained.outcomes:
            agent.news.on_outcome(write, outcome)
        for write, error in self._drained.rejected:
            agent.news.on_rejected(write, error)

        def tell() -> None:
            for body, run_id in self._repair.events:
                core.publish(body, run_id)
            core.publish(StatusChanged(agent.status, core.state.error, core.state.pause_reason))

        writes = [request_for(write) for write in self._repair.writes]
        await core.ledger.record(self._repair.changes, writes, tell)
        lost = any(
            isinstance(body, RunEnded) and body.end is RunEnd.LOST
            for body, _ in self._repair.events
        )
        if lost:
            agent.saver.want(Lifecycle.ON_ERROR)
        elif self._restored and core.ledger.unsaved:
            agent.saver.want(Lifecycle.ON_COMPLETION)
        planned = agent.planned_run()
        if planned is not None and _is_due(core.state, planned):
            # Accepted before the crash and never begun: its answer is still owed.
            agent.claim_run(planned)
            agent.begin_run(planned)

    def _call(self, request_id: str, epoch: int) -> PluginCall:
        return PluginCall(
            scope=self._scope,
            conversation_id=self.conversation.conversation_id,
            agent_id=self._key.agent_id,
            request_id=request_id,
            owner_epoch=epoch,
        )

    async def _drain(self, entries: Sequence[JournalEntry]) -> None:
        pipeline = DisplayPipeline(
            self._services.display_store,
            self._services.journal,
            call=self._call,
            listener=self._drained,
            clock=self._services.clock,
        )
        pipeline.enqueue([_queued(entry) for entry in entries])
        while pipeline.unsaved:
            try:
                await pipeline.send()
            except StaleEpochError:
                logger.warning("journal entries of a lost epoch are set aside")
                self._services.journal.set_aside(
                    [write.entry_id for write in pipeline.waiting()], "STALE_EPOCH"
                )
                return
            except PluginError as error:
                if error.reason == "PLUGIN_FAULT":
                    # The same write again, until it is through or set aside: a new start would begin
                    # to count anew, and a poisoned write would keep the agent from ever starting.
                    await self._services.clock.sleep(FIRST_PAUSE)
                    continue
                raise UnavailableError(
                    "PLUGIN_BEHIND",
                    f"writes of the agent's earlier life are not stored yet: {error.message}",
                    retry_after=timedelta(seconds=1),
                    plugin=error.plugin,
                    entries=pipeline.unsaved,
                ) from error

    def _assemble(self, folded: Folded, profile: Profile, epoch: int) -> Agent:
        services = self._services
        core = AgentCore(
            key=self._key,
            conversation=self.conversation,
            scope=self._scope,
            owner_epoch=epoch,
            profile=profile,
            state=folded.state,
            log=services.streams.log(self._key, self.conversation.conversation_id),
            display_plugin=services.display_store.plugin,
            display_capabilities=services.display_store.capabilities,
            executor=services.executor,
            clock=services.clock,
            ephemeral_tool_context=self._options.ephemeral_tool_context_json,
            on_event=functools.partial(services.streams.happened, self._key),
        )
        agent = Agent(core, settle_timeout=services.settle_timeout)
        pipeline = DisplayPipeline(
            services.display_store,
            services.journal,
            call=core.call,
            listener=agent.news,
            clock=services.clock,
        )
        core.ledger = Ledger(
            services.journal,
            self.conversation,
            self._key.agent_id,
            folded.state,
            epoch=epoch,
            on_writes=pipeline.enqueue,
        )
        core.ledger.restore(folded.unsaved)
        state_capabilities = services.state_store.capabilities
        saver = StateSaver(
            services.state_store,
            folded.state,
            core.ledger,
            call=core.call,
            listener=agent.news,
            clock=services.clock,
            capabilities=state_capabilities,
            max_state_bytes=services.state_store.max_state_bytes,
            base_size=folded.base_size,
            stored_revision=folded.stored_revision,
            patches_size=folded.patches_size,
        )
        agent.connect(pipeline, saver, wants_checkpoints=state_capabilities.checkpoint)
        return agent


def fold(stored: StoredState, entries: Sequence[JournalEntry], owner_id: str) -> Folded:
    """Puts a state together: base, stored patches, newer journal patches of the same owner.

    Raises:
        CorruptDataError: STATE_CORRUPT.
        InvalidStateError: STATE_VERSION_UNSUPPORTED.
    """
    if stored.schema_version > SCHEMA_VERSION:
        raise InvalidStateError(
            "STATE_VERSION_UNSUPPORTED",
            "the stored state was written by a newer server",
            schema_version=stored.schema_version,
            supported=SCHEMA_VERSION,
        )
    is_ours = stored.previous_owner in ("", owner_id)
    recorded = [entry for entry in entries if entry.record.kind == PATCH]
    try:
        state = AgentState()
        if stored.base_json is not None:
            state = codec.from_json(stored.base_json, AgentState)
            state.revision = stored.base_revision
        for _, text in stored.patches:
            state.apply(codec.from_json(text, Patch))
        stored_revision = state.revision
        unsaved = []
        for entry in recorded if is_ours else ():
            if entry.record.revision > stored_revision:
                patch = codec.from_json(entry.record.payload, Patch)
                state.apply(patch)
                unsaved.append(RecordedPatch(entry.entry_id, patch, len(entry.record.payload)))
    except (codec.UnreadableError, ValueError, IndexError) as error:
        raise CorruptDataError(
            "STATE_CORRUPT", "what is stored of the agent cannot be read"
        ) from error
    return Folded(
        state=state,
        base_size=len(stored.base_json) if stored.base_json is not None else None,
        patches_size=sum(len(text) + PATCH_OVERHEAD for _, text in stored.patches),
        stored_revision=stored_revision,
        unsaved=unsaved,
        acknowledged=[
            entry.entry_id
            for entry in recorded
            if is_ours and entry.record.revision <= stored_revision
        ],
        foreign=[] if is_ours else [entry.entry_id for entry in recorded],
    )


def _is_due(state: AgentState, planned: Run) -> bool:
    """Says whether a run that never begun begins at the start of its agent.

    What was queued behind a run that was cancelled, paused or failed stays held; what was accepted to
    begin at once is due whatever happened before.
    """
    if state.held and state.status not in HOLDING:
        return True
    return any(
        recorded.answer.get("run_id") == planned.run_id and recorded.answer.get("queued") != "true"
        for recorded in state.answers.values()
    )


def _queued(entry: JournalEntry) -> QueuedWrite:
    try:
        request = codec.from_json(entry.record.payload, WriteRequest)
    except codec.UnreadableError as error:
        raise CorruptDataError(
            "STATE_CORRUPT", "an entry of the journal cannot be read", entry_id=entry.entry_id
        ) from error
    return QueuedWrite(entry.entry_id, entry.record.epoch, request)


def options_differ(wanted: StartOptions | None, stored: StartOptions | None) -> bool:
    """Says whether a caller's options are other ones than the agent has."""
    return wanted is not None and stored is not None and wanted != stored
