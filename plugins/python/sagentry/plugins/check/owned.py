"""Conversations that cases own, and the calls that they make on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.api.type.v1 import display_pb2, document_pb2, message_pb2, scope_pb2
from sagentry.plugins.check.answer import Answer, SkippedError
from sagentry.plugins.check.methods import (
    APPEND_STATE,
    APPLY_WRITES,
    LIST_DISPLAY_MESSAGES,
    LOAD_STATE,
    OPEN_CONVERSATION,
    PERSIST_STATE,
    RESOLVE_TOOL_RESULT,
    SAVE_MESSAGE,
    SAVE_SYNTHETIC_MESSAGE,
    SET_INTERRUPTED,
    UPDATE_TOOL_STATUS,
)
from sagentry.plugins.check.session import Session


def json_document(text: str) -> document_pb2.Document:
    """Returns JSON text as a document."""
    return document_pb2.Document(media_type="application/json", json=text)


def text_item(text: str = "hello", sequence: int = 0) -> display_pb2.DisplayItem:
    """Returns an item of the model's text."""
    return display_pb2.DisplayItem(
        sequence=sequence,
        type=display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT,
        content=display_pb2.DisplayContent(text=display_pb2.TextContent(text=text)),
    )


def call_item(call_id: str, sequence: int = 0, arguments: str = "{}") -> display_pb2.DisplayItem:
    """Returns an item of a tool call."""
    call = display_pb2.ToolCallContent(call_id=call_id, name="search", arguments_json=arguments)
    return display_pb2.DisplayItem(
        sequence=sequence,
        type=display_pb2.DISPLAY_MESSAGE_TYPE_ASSISTANT,
        content=display_pb2.DisplayContent(tool_call=call),
        tool_status=display_pb2.TOOL_STATUS_PENDING,
    )


def result_content(
    call_id: str, text: str = "", *, is_interrupt: bool = False
) -> display_pb2.ToolResultContent:
    """Returns a tool's answer, or the place that it will have."""
    return display_pb2.ToolResultContent(
        call_id=call_id, name="search", text=text, is_interrupt=is_interrupt
    )


def result_item(
    call_id: str, text: str = "", *, is_interrupt: bool = False
) -> display_pb2.DisplayItem:
    """Returns an item of a tool's answer, or of the place that it will have."""
    content = result_content(call_id, text, is_interrupt=is_interrupt)
    return display_pb2.DisplayItem(
        type=display_pb2.DISPLAY_MESSAGE_TYPE_TOOL,
        content=display_pb2.DisplayContent(tool_result=content),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owned:
    """A conversation and the epoch that it is written with.

    Attributes:
        session: The plugin under judgement.
        scope: For whom.
        conversation_id: The conversation.
        epoch: The epoch of writes; 0 without fencing.
    """

    session: Session
    scope: scope_pb2.Scope
    conversation_id: str
    epoch: int = 0

    @classmethod
    def new(cls, session: Session, scope: scope_pb2.Scope | None = None) -> Self:
        """Returns a new conversation, by default of a new tenant, under epoch 0."""
        return cls(
            session=session,
            scope=scope or session.scope(),
            conversation_id=session.name("conversation"),
        )

    def context(self, request_id: str = "", *, reads: bool = False) -> call_context_pb2.CallContext:
        """Returns the context of a call; one that only reads has no epoch."""
        return self.session.context(
            scope=self.scope,
            conversation_id=self.conversation_id,
            request_id=request_id,
            owner_epoch=0 if reads else self.epoch,
        )

    def at(self, epoch: int) -> Self:
        """Returns the conversation under another epoch."""
        return replace(self, epoch=epoch)

    def of(self, scope: scope_pb2.Scope) -> Self:
        """Returns the conversation of the same id in another scope."""
        return replace(self, scope=scope)


class OwnedState(_Owned):
    """A conversation of AgentPersistenceService."""

    __slots__ = ()

    @classmethod
    async def claimed(cls, session: Session, scope: scope_pb2.Scope | None = None) -> Self:
        """Returns a new conversation under the epoch of a claim."""
        return await cls.new(session, scope).claimed_again()

    async def claimed_again(self, owner_id: str = "judge") -> Self:
        """Returns the conversation under the epoch of one more claim."""
        return self.at(epoch_of((await self.claim(owner_id)).ok()))

    async def claim(
        self, owner_id: str = "judge", request_id: str = ""
    ) -> Answer[agent_pb.LoadStateResponse]:
        """Calls LoadState with a claim."""
        request = agent_pb.LoadStateRequest(
            context=self.context(request_id, reads=True),
            claim=agent_pb.StateClaim(owner_id=owner_id),
        )
        return await self.session.call(LOAD_STATE, request)

    async def load(self) -> Answer[agent_pb.LoadStateResponse]:
        """Calls LoadState without a claim."""
        request = agent_pb.LoadStateRequest(context=self.context(reads=True))
        return await self.session.call(LOAD_STATE, request)

    async def found(self) -> agent_pb.StateFound:
        """Returns the stored state."""
        answer = await self.load()
        answer.expect(answer.ok().WhichOneof("outcome") == "found", "the stored state, found")
        return answer.ok().found

    async def persist(
        self, revision: int, state: str = "{}", *, release: bool = False, request_id: str = ""
    ) -> Answer[agent_pb.PersistStateResponse]:
        """Calls PersistState."""
        request = agent_pb.PersistStateRequest(
            context=self.context(request_id),
            lifecycle=agent_pb.LIFECYCLE_ON_COMPLETION,
            state=json_document(state),
            schema_version=1,
            revision=revision,
            release=release,
        )
        return await self.session.call(PERSIST_STATE, request)

    async def append(
        self, revision: int, patch: str = "[]", *, expected: int | None = None
    ) -> Answer[agent_pb.AppendStateResponse]:
        """Calls AppendState; by default it expects the revision before."""
        request = agent_pb.AppendStateRequest(
            context=self.context(),
            expected_revision=revision - 1 if expected is None else expected,
            revision=revision,
            patch=json_document(patch),
        )
        return await self.session.call(APPEND_STATE, request)

    async def set_interrupted(
        self, revision: int, *, interrupted: bool
    ) -> Answer[agent_pb.SetInterruptedResponse]:
        """Calls SetInterrupted."""
        request = agent_pb.SetInterruptedRequest(
            context=self.context(), interrupted=interrupted, revision=revision
        )
        return await self.session.call(SET_INTERRUPTED, request)


class OwnedTranscript(_Owned):
    """A conversation of DisplayMessagePersistenceService."""

    __slots__ = ()

    @classmethod
    async def opened(cls, session: Session, scope: scope_pb2.Scope | None = None) -> Self:
        """Returns a new conversation that is open under epoch 1, or 0 without fencing."""
        return await cls.new(session, scope).opened_again(1)

    async def opened_again(self, epoch: int) -> Self:
        """Returns the conversation, open under a higher epoch, or as it is without fencing."""
        if OPEN_CONVERSATION.capability not in self.session.capabilities:
            return self
        opened = self.at(epoch)
        (await opened.open()).ok()
        return opened

    async def open(self) -> Answer[display_pb.OpenConversationResponse]:
        """Calls OpenConversation."""
        request = display_pb.OpenConversationRequest(context=self.context())
        return await self.session.call(OPEN_CONVERSATION, request)

    async def save(
        self, *items: display_pb2.DisplayItem, message_id: str = "", request_id: str = ""
    ) -> Answer[display_pb.SaveMessageResponse]:
        """Calls SaveMessage, by default of a new message."""
        request = self.save_request(items, message_id)
        request.context.CopyFrom(self.context(request_id))
        return await self.session.call(SAVE_MESSAGE, request)

    def save_request(
        self, items: Iterable[display_pb2.DisplayItem], message_id: str = ""
    ) -> display_pb.SaveMessageRequest:
        """Returns a SaveMessage without context, as groups have it."""
        message = message_pb2.Message(
            message_id=message_id or self.session.name("message"),
            role=message_pb2.ROLE_ASSISTANT,
            parts=[message_pb2.Part(text=message_pb2.TextPart(text="hello"))],
            status=message_pb2.MESSAGE_STATUS_COMPLETE,
        )
        return display_pb.SaveMessageRequest(message=message, items=items)

    async def rows(
        self, *items: display_pb2.DisplayItem, message_id: str = ""
    ) -> list[display_pb2.DisplayMessage]:
        """Saves a message and returns its rows.

        Raises:
            SkippedError: if the plugin keeps another number of rows, which it may.
        """
        answer = await self.save(*items, message_id=message_id)
        rows = list(answer.ok().saved.display_messages)
        if len(rows) != len(items):
            raise SkippedError(f"the plugin makes {len(rows)} rows of {len(items)} items")
        return rows

    async def synthetic(
        self, item: display_pb2.DisplayItem, message_id: str = ""
    ) -> Answer[display_pb.SaveSyntheticMessageResponse]:
        """Calls SaveSyntheticMessage."""
        request = display_pb.SaveSyntheticMessageRequest(
            context=self.context(),
            message_id=message_id or self.session.name("message"),
            item=item,
        )
        return await self.session.call(SAVE_SYNTHETIC_MESSAGE, request)

    async def update(
        self,
        row: display_pb2.DisplayMessage,
        status: display_pb2.ToolStatus.ValueType,
        info: display_pb2.ToolInfo | None = None,
    ) -> Answer[display_pb.UpdateToolStatusResponse]:
        """Calls UpdateToolStatus for the row of a call."""
        request = display_pb.UpdateToolStatusRequest(
            context=self.context(),
            message_id=row.message_id,
            call_id=row.content.tool_call.call_id,
            status=status,
            tool_info=info,
        )
        return await self.session.call(UPDATE_TOOL_STATUS, request)

    async def resolve(
        self, row: display_pb2.DisplayMessage, text: str
    ) -> Answer[display_pb.ResolveToolResultResponse]:
        """Calls ResolveToolResult for the row of a result."""
        call_id = row.content.tool_result.call_id
        request = display_pb.ResolveToolResultRequest(
            context=self.context(),
            message_id=row.message_id,
            call_id=call_id,
            content=result_content(call_id, text),
        )
        return await self.session.call(RESOLVE_TOOL_RESULT, request)

    async def page(
        self,
        order: display_pb.ListOrder.ValueType = display_pb.LIST_ORDER_POSITION_ASCENDING,
        *,
        after: int | None = None,
        page_size: int = 0,
    ) -> Answer[display_pb.ListDisplayMessagesResponse]:
        """Calls ListDisplayMessages."""
        request = display_pb.ListDisplayMessagesRequest(
            context=self.context(reads=True), order=order, after=after, page_size=page_size
        )
        return await self.session.call(LIST_DISPLAY_MESSAGES, request)

    def group(self, *writes: display_pb.Write) -> display_pb.WriteGroup:
        """Returns a group of writes to this conversation."""
        return display_pb.WriteGroup(context=self.context(), writes=writes)

    def save_write(self, *items: display_pb2.DisplayItem, message_id: str = "") -> display_pb.Write:
        """Returns a SaveMessage as a write of a group."""
        return display_pb.Write(save_message=self.save_request(items, message_id))


async def apply(
    session: Session, *groups: display_pb.WriteGroup
) -> Answer[display_pb.ApplyWritesResponse]:
    """Calls ApplyWrites."""
    request = display_pb.ApplyWritesRequest(context=session.plugin_context(), groups=groups)
    return await session.call(APPLY_WRITES, request)


def epoch_of(response: agent_pb.LoadStateResponse) -> int:
    """Returns the owner_epoch of either outcome."""
    if response.WhichOneof("outcome") == "found":
        return response.found.owner_epoch
    return response.absent.owner_epoch


def previous_owner_of(response: agent_pb.LoadStateResponse) -> str:
    """Returns the previous_owner of either outcome."""
    if response.WhichOneof("outcome") == "found":
        return response.found.previous_owner
    return response.absent.previous_owner
