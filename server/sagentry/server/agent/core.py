"""What the parts of one agent share: its identity, its state, its ledger, its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sagentry.server.agent.items import display_items, humanise
from sagentry.server.agent.ledger import Ledger
from sagentry.server.agent.model_view import ModelView
from sagentry.server.domain.display import DisplayItem
from sagentry.server.domain.events import EventBody
from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import Message, Role, TextPart
from sagentry.server.domain.scope import AgentKey, ConversationKey, Scope
from sagentry.server.domain.state import AgentState, Change
from sagentry.server.domain.writes import DisplayWrite, SaveMessage, SaveSynthetic
from sagentry.server.model_ports import ChatModel, Tool, ToolContext, ToolExecutor
from sagentry.server.ports import Clock, DisplayStoreCapabilities, PluginCall, WriteRequest
from sagentry.server.stream_ports import AgentLog


@dataclass(frozen=True, slots=True)
class Profile:
    """A named configuration that agents are started from.

    Attributes:
        name: Its name in the configuration.
        model: The model.
        system_prompt: Instructions; empty for none.
        tools: The tools by name.
        max_turns: Most model calls of a run.
        inactivity_timeout: How long an agent stays awake unused; 0 is for ever.
        unwatched_timeout: How long an idle one stays awake that nobody looks at; 0 is for ever.
    """

    name: str
    model: ChatModel
    system_prompt: str
    tools: dict[str, Tool]
    max_turns: int
    inactivity_timeout: timedelta = timedelta(0)
    unwatched_timeout: timedelta = timedelta(0)

    def label(self, tool_name: str) -> str:
        """Returns the label for people of a tool's calls."""
        tool = self.tools.get(tool_name)
        return tool.display_text if tool and tool.display_text else humanise(tool_name)


@dataclass(slots=True)
class AgentCore:
    """One agent's shared parts.

    Attributes:
        key: Identity among live agents.
        conversation: Storage identity.
        scope: The last accepted scope, whose payload goes with what the agent does by itself.
        owner_epoch: Epoch of ownership.
        profile: What it was started from.
        state: Its state; changed by the ledger only.
        log: Tells readers.
        display_plugin: Name of the display store's plugin.
        display_capabilities: What it could do when the agent started.
        executor: Runs tools.
        clock: The time.
        ephemeral_tool_context: Tool context that is kept in memory only, as JSON text.
        on_event: Told after each event, for those who watch lists of agents.
        model_view: Makes what the model is given of the conversation.
        ledger: Records changes. Set once the state is known.
        checkpoint: Asks for a save in mid-run, where the state store wants them.
    """

    key: AgentKey
    conversation: ConversationKey
    scope: Scope
    owner_epoch: int
    profile: Profile
    state: AgentState
    log: AgentLog
    display_plugin: str
    display_capabilities: DisplayStoreCapabilities
    executor: ToolExecutor
    clock: Clock
    ephemeral_tool_context: str = ""
    on_event: Callable[[], None] = lambda: None
    model_view: ModelView = field(default_factory=ModelView)
    ledger: Ledger = field(init=False)
    checkpoint: Callable[[], None] = field(init=False)

    def publish(self, body: EventBody, run_id: str = "") -> None:
        """Tells readers of something that happened."""
        self.log.publish(body, run_id=run_id, owner_epoch=self.owner_epoch)
        self.on_event()

    async def record(
        self,
        changes: Sequence[Change],
        writes: Sequence[DisplayWrite] = (),
        *,
        events: Sequence[EventBody] = (),
        run_id: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Records changes and display writes; returns when they are on disk, applied and told.

        Readers are told of `events` when they are on disk, before the writes leave. `then` is called in the
        same step, so that no snapshot falls between the two.
        """

        def tell() -> None:
            for body in events:
                self.publish(body, run_id)
            if then is not None:
                then()

        await self.ledger.record(changes, [request_for(write) for write in writes], tell)

    def call(self, request_id: str, epoch: int | None = None) -> PluginCall:
        """Makes the context of a plugin call that the agent makes by itself.

        Args:
            request_id: Identity of the operation.
            epoch: The epoch that a write was recorded with; the current one when None.
        """
        return PluginCall(
            scope=self.scope,
            conversation_id=self.conversation.conversation_id,
            agent_id=self.key.agent_id,
            request_id=request_id,
            owner_epoch=self.owner_epoch if epoch is None else epoch,
        )

    def tool_context(self, call_id: str) -> ToolContext:
        """Makes what a tool is told beside its arguments."""
        options = self.state.options
        document = options.tool_context if options else None
        return ToolContext(
            call_id=call_id,
            agent_id=self.key.agent_id,
            conversation_id=self.conversation.conversation_id,
            scope=self.scope,
            tool_context=(document.json or "") if document else self.ephemeral_tool_context,
        )

    def notice_write(self, item: DisplayItem, fallback_text: str) -> DisplayWrite:
        """Makes the write of a row that no message stands behind.

        A store without that capability gets an assistant message with `fallback_text` instead.
        """
        message_id = new_id("row")
        if self.display_capabilities.save_synthetic:
            return SaveSynthetic(message_id, item)
        message = Message(
            message_id=message_id,
            role=Role.ASSISTANT,
            parts=(TextPart(fallback_text),),
            create_time=self.clock.now(),
        )
        return SaveMessage(message, display_items(message))


def request_for(write: DisplayWrite) -> WriteRequest:
    """Gives a write the request_id that makes its repetition safe."""
    return WriteRequest(new_id("write"), write)
