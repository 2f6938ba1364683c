"""What the server's parts need of each other and of the world, as protocols in domain terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sagentry.server.domain.commands import (
    AddMessage,
    AddMessageReply,
    AgentPage,
    CancelRun,
    CancelRunReply,
    GetRun,
    ListAgents,
    ListRows,
    PauseRun,
    PauseRunReply,
    ResumeAgent,
    ResumeAgentReply,
    RunReply,
    StartAgent,
    StartAgentReply,
    StartRun,
    StartRunReply,
    StateReply,
    StopAgent,
    StopAgentReply,
    SubscribeEvents,
)
from sagentry.server.domain.display import (
    ConversationCounters,
    DisplayPage,
    ListOrder,
)
from sagentry.server.domain.events import AgentView
from sagentry.server.domain.messages import Document, Message
from sagentry.server.domain.plugins import PluginFailure, PluginView
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.scope import ConversationKey, Scope
from sagentry.server.domain.writes import DisplayWrite, WriteOutcome
from sagentry.server.stream_ports import EventSource, WatchSource


class PluginDirectory(Protocol):
    """Shows the configured plugins. All methods answer at once from memory."""

    def list_plugins(self) -> Sequence[PluginView]:
        """Returns all configured plugins by name."""

    def get_plugin(self, name: str) -> PluginView:
        """Returns one plugin.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND; names the known ones.
        """

    def list_failures(self, plugin: str | None = None) -> Sequence[PluginFailure]:
        """Returns the newest failures, newest first; of one plugin if named.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND.
        """

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls the listener, on the event loop, after each change of what `list_plugins` returns.

        Returns:
            What ends it.
        """

    async def test_plugin(self, name: str) -> PluginView:
        """Tries to attach the plugin now and returns what came of it.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND.
        """


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as an Authenticator found out.

    Attributes:
        name: For logs and audits, for example `anonymous` or a token's name.
        is_service: May set the scope of its requests.
        is_admin: May call the admin service.
    """

    name: str
    is_service: bool
    is_admin: bool


class Authenticator(Protocol):
    """Finds out who calls."""

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], peer: str) -> Caller:
        """Returns the caller.

        Args:
            metadata: The call's metadata, keys in lower case.
            peer: The transport's name of the peer, for example `unix:` or `ipv4:127.0.0.1:4711`.

        Raises:
            UnauthenticatedError: The credentials are missing or not accepted.
        """


@dataclass(frozen=True, slots=True)
class PluginCall:
    """Who a plugin call is for.

    Attributes:
        scope: The tenant, with the payload to pass on.
        conversation_id: The storage identity.
        agent_id: The live agent; information.
        request_id: Identity of the operation: unchanged when the call is repeated.
        owner_epoch: Ownership; 0 for calls that only read and where there is no fence.
        run_id: The run; information.
        timeout: Time that the caller has left; None means the method's own budget.
    """

    scope: Scope
    conversation_id: str
    agent_id: str
    request_id: str
    owner_epoch: int = 0
    run_id: str = ""
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StateStoreCapabilities:
    """What a state store can do beyond the required methods."""

    fencing: bool = False
    append_state: bool = False
    set_interrupted: bool = False
    delete_state: bool = False
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class StoredState:
    """What LoadState answered.

    Attributes:
        base_json: The last full state; None when absent.
        schema_version: Version of the base's form.
        base_revision: Revision of the base.
        patches: (revision, JSON text) since the base, ascending.
        owner_epoch: Epoch to write with; 0 without fencing.
        previous_owner: The owner before this claim; empty for none.
        released: Whether that owner had given the conversation up.
        interrupted: The stored flag; None when it was never set.
    """

    base_json: str | None
    schema_version: int = 0
    base_revision: int = 0
    patches: tuple[tuple[int, str], ...] = ()
    owner_epoch: int = 0
    previous_owner: str = ""
    released: bool = False
    interrupted: bool | None = None


class StateStore(Protocol):
    """Keeps agent state. Every method raises PluginError; StaleEpochError when ownership is lost."""

    plugin: str

    @property
    def capabilities(self) -> StateStoreCapabilities:
        """What the attached plugin declared. Raises PluginError when it is not attached."""

    @property
    def max_state_bytes(self) -> int:
        """Largest state that fits into a request to the attached plugin and into its answer."""

    async def load(self, call: PluginCall, *, claim_as: str | None) -> StoredState:
        """Loads the state; claims the conversation for the owner `claim_as` unless that is None."""

    async def persist(
        self,
        call: PluginCall,
        *,
        lifecycle: Lifecycle,
        state_json: str,
        schema_version: int,
        revision: int,
        release: bool,
    ) -> None:
        """Saves the whole state."""

    async def append(
        self, call: PluginCall, *, expected_revision: int, revision: int, patch_json: str
    ) -> bool:
        """Adds a patch; False when the store wants a full state instead."""

    async def set_interrupted(self, call: PluginCall, *, interrupted: bool, revision: int) -> None:
        """Sets the flag that says whether the conversation waits for people."""


@dataclass(frozen=True, slots=True)
class DisplayStoreCapabilities:
    """What a display store can do beyond the required methods."""

    fencing: bool = False
    resolve_tool_result: bool = False
    save_synthetic: bool = False
    list_rows: bool = False
    apply_writes: bool = False
    delete_conversation: bool = False


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A display write with the request_id that makes its repetition safe."""

    request_id: str
    write: DisplayWrite


class DisplayStore(Protocol):
    """Keeps display messages. Every method raises PluginError; StaleEpochError when ownership is lost."""

    plugin: str

    @property
    def capabilities(self) -> DisplayStoreCapabilities:
        """What the attached plugin declared. Raises PluginError when it is not attached."""

    async def open(self, call: PluginCall) -> ConversationCounters:
        """Opens the conversation for the call's epoch; zeros without fencing."""

    async def apply(
        self, call: PluginCall, writes: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        """Does the writes in order and returns their outcomes.

        As one ApplyWrites where the plugin can, otherwise one call each. When one fails the ones before it
        are done: PartialWriteError has their outcomes and the failure of the first that is not.
        """

    async def list_rows(
        self, call: PluginCall, *, order: ListOrder, after: int | None, page_size: int
    ) -> DisplayPage:
        """Lists rows."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A preprocessor accepted a message.

    Attributes:
        display: What people see; None for nothing.
        llm: What the model reads.
    """

    display: Message | None
    llm: Message


@dataclass(frozen=True, slots=True)
class Rejected:
    """A preprocessor rejected a message.

    Attributes:
        reason: A word for programs.
        user_message: In words for the user.
        violations: (field, description) of the places at fault.
    """

    reason: str
    user_message: str
    violations: tuple[tuple[str, str], ...] = ()


class Preprocessor(Protocol):
    """Looks at each message before it is accepted. Raises PluginError."""

    plugin: str

    async def preprocess(
        self,
        call: PluginCall,
        message: Message,
        *,
        tool_context: Document | None,
        messages: Sequence[Message],
    ) -> Accepted | Rejected:
        """Decides what becomes of a message; `messages` is the conversation so far."""


class Clock(Protocol):
    """Tells the time; tests bring their own."""

    def now(self) -> datetime:
        """Returns the wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Returns seconds that never go back."""

    async def sleep(self, duration: timedelta) -> None:
        """Returns when the duration is over."""

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the event loop after the delay; returns what takes that back."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record, as it is appended.

    Attributes:
        kind: What it is, for example `patch` or `display`.
        epoch: Epoch that it belongs to.
        revision: Revision of a patch; 0 otherwise.
        payload: JSON text of the record.
    """

    kind: str
    epoch: int
    revision: int
    payload: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One record, as it is stored.

    Attributes:
        entry_id: Number of the entry, ascending in order of appending.
        conversation: What it belongs to.
        agent_id: The agent that wrote it.
        record: The record.
    """

    entry_id: int
    conversation: ConversationKey
    agent_id: str
    record: JournalRecord


class Journal(Protocol):
    """The server's on-disk record of what is accepted and not yet acknowledged by a plugin."""

    def append(
        self,
        conversation: ConversationKey,
        agent_id: str,
        records: Sequence[JournalRecord],
        *,
        on_durable: Callable[[Sequence[int], Exception | None], None],
    ) -> None:
        """Appends records together: after a crash all of them are there or none.

        Returns at once. `on_durable` is called on the event loop, in the order of the appends, when the
        records are on disk, with their entry ids; or with the error that kept them off it.
        """

    def remove(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that are acknowledged. Returns at once; a crash may bring them back."""

    def set_aside(self, entry_ids: Sequence[int], reason: str) -> None:
        """Moves entries to quarantine: they are kept and never sent again by themselves."""

    def note_attempt(self, entry_ids: Sequence[int], reason: str) -> None:
        """Notes that entries were sent in vain and why, for operators. Returns at once; may be lost."""

    async def read(self, conversation: ConversationKey) -> Sequence[JournalEntry]:
        """Returns the entries of a conversation, oldest first."""

    async def conversations(self) -> Sequence[tuple[ConversationKey, str]]:
        """Returns (conversation, newest agent_id) of everything that has entries."""


class AgentDirectory(Protocol):
    """Finds, wakes and commands agents: what the agent service calls.

    Every method raises SagentryError. A caller that goes away ends nothing but its own waiting.
    """

    async def start_agent(self, command: StartAgent) -> StartAgentReply:
        """Starts an agent, or finds it live."""

    def touch_agent(self, scope: Scope, agent_id: str) -> bool:
        """Notes that a live agent is used; returns whether it is live. Never wakes one."""

    async def get_agent(self, scope: Scope, agent_id: str) -> AgentView:
        """Reads an agent; a sleeping one from its store, without waking it."""

    async def list_agents(self, command: ListAgents) -> AgentPage:
        """Lists live agents."""

    async def pause_run(self, command: PauseRun) -> PauseRunReply:
        """Pauses a run after the step that it is at."""

    async def resume_agent(self, command: ResumeAgent) -> ResumeAgentReply:
        """Goes on with a paused run; wakes the agent."""

    async def stop_agent(self, command: StopAgent) -> StopAgentReply:
        """Puts an agent to sleep."""

    async def add_message(self, command: AddMessage) -> AddMessageReply:
        """Gives an agent a message."""

    async def start_run(self, command: StartRun) -> StartRunReply:
        """Begins a run without a new message."""

    async def get_run(self, command: GetRun) -> RunReply:
        """Reads a run and waits for its end if asked."""

    async def cancel_run(self, command: CancelRun) -> CancelRunReply:
        """Cancels a run and keeps what there is of it."""

    async def get_state(self, scope: Scope, agent_id: str) -> StateReply:
        """Reads the whole state."""

    async def list_rows(self, command: ListRows) -> DisplayPage:
        """Lists rows of a conversation."""

    async def subscribe(self, command: SubscribeEvents) -> EventSource:
        """Follows an agent, also one that is not live. The caller closes the source.

        Raises:
            InvalidInputError: CURSOR_INVALID.
        """

    def watch(self, scope: Scope) -> WatchSource:
        """Watches the live agents of a scope. The caller closes the source."""
