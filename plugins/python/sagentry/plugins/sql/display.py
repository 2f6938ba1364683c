"""The operations of DisplayMessagePersistenceService, each inside a transaction of the caller."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, insert, select, update

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from sagentry.plugins.sdk import Call, StateCorruptError
from sagentry.plugins.sql import content, conversations
from sagentry.plugins.sql.conversations import Conversation
from sagentry.plugins.sql.names import TOOL_STATUSES, TYPES
from sagentry.plugins.sql.schema import display_messages

MAX_PAGE_BYTES = 1024 * 1024
DEFAULT_PAGE_SIZE = 100

_UNFINISHED = frozenset({display_pb2.TOOL_STATUS_PENDING, display_pb2.TOOL_STATUS_EXECUTING})
_OPEN = _UNFINISHED | {display_pb2.TOOL_STATUS_INTERRUPTED}
_ALLOWED_FROM = {
    display_pb2.TOOL_STATUS_EXECUTING: frozenset({display_pb2.TOOL_STATUS_PENDING}),
    display_pb2.TOOL_STATUS_COMPLETED: _OPEN,
    display_pb2.TOOL_STATUS_FAILED: _OPEN,
    display_pb2.TOOL_STATUS_CANCELLED: _OPEN,
    display_pb2.TOOL_STATUS_INTERRUPTED: _UNFINISHED,
}
"""Status → the statuses that a step may come from."""

_ROWS = select(display_messages).where(display_messages.c.conversation_key == bindparam("key"))
_OF_MESSAGE = _ROWS.where(display_messages.c.message_id == bindparam("message")).order_by(
    display_messages.c.sequence
)
_OF_CALL = _OF_MESSAGE.where(
    display_messages.c.content_kind == bindparam("kind"),
    display_messages.c.call_id == bindparam("call"),
)
_INSERT = insert(display_messages)
_UPDATE = (
    update(display_messages)
    .where(
        display_messages.c.conversation_key == bindparam("key"),
        display_messages.c.position == bindparam("at"),
    )
    .values(
        {
            name: bindparam(name)
            for name in ("change", "tool_status", "content", "tool_info", "exact")
        }
    )
)


class Transcript:
    """Writes to one conversation inside one transaction.

    Args:
        connection: In a transaction that may write.
        call: For whom and under which epoch.

    Raises:
        StaleEpochError: if another owner has opened the conversation.
    """

    def __init__(self, connection: Connection, call: Call) -> None:
        self._connection = connection
        self._call = call
        self._stored = conversations.lock(connection, call)
        self._is_changed = False
        if self._stored is not None:
            self._stored.fence("display", call.owner_epoch)

    def open(self) -> pb.OpenConversationResponse:
        """Stores the epoch and returns the counters."""
        conversation = self._conversation()
        self._is_changed = True
        opened = pb.ConversationOpened(
            last_position=conversation.last_position, last_change=conversation.last_change
        )
        return pb.OpenConversationResponse(opened=opened)

    def save_message(self, request: pb.SaveMessageRequest) -> pb.SaveMessageResponse:
        """Saves the rows of a message, unless it has rows."""
        rows = self._saved(request.message.message_id, request.items)
        return pb.SaveMessageResponse(saved=pb.MessageSaved(display_messages=rows))

    def save_synthetic_message(
        self, request: pb.SaveSyntheticMessageRequest
    ) -> pb.SaveSyntheticMessageResponse:
        """Saves one row, unless its message has one."""
        row = self._saved(request.message_id, [request.item])[0]
        saved = pb.SyntheticMessageSaved(display_message=row)
        return pb.SaveSyntheticMessageResponse(saved=saved)

    def update_tool_status(
        self, request: pb.UpdateToolStatusRequest
    ) -> pb.UpdateToolStatusResponse:
        """Moves a tool call's row to another status, if the step is allowed."""
        rows = self._of_call("tool_call", request.message_id, request.call_id)
        if not rows:
            return pb.UpdateToolStatusResponse(no_match=pb.DisplayMessageNoMatch())
        row = rows[0]
        if row.tool_status in _ALLOWED_FROM.get(request.status, ()):
            row.tool_status = request.status
            if request.HasField("tool_info"):
                row.tool_info.MergeFrom(request.tool_info)
            self._update(row)
        updated = pb.DisplayMessageUpdated(display_message=row)
        return pb.UpdateToolStatusResponse(updated=updated)

    def resolve_tool_result(
        self, request: pb.ResolveToolResultRequest
    ) -> pb.ResolveToolResultResponse:
        """Replaces the content of a result row that holds the place of an answer."""
        for row in self._of_call("tool_result", request.message_id, request.call_id):
            result = row.content.tool_result
            if result.is_interrupt:
                result.CopyFrom(request.content)
                self._update(row)
            elif not content.equal(result, request.content):
                continue
            updated = pb.DisplayMessageUpdated(display_message=row)
            return pb.ResolveToolResultResponse(updated=updated)
        return pb.ResolveToolResultResponse(no_match=pb.DisplayMessageNoMatch())

    def finish(self) -> None:
        """Stores counters and epoch, if a row or the epoch was written."""
        if self._is_changed and self._stored is not None:
            conversations.store(self._connection, self._stored, "display")

    def _conversation(self) -> Conversation:
        if self._stored is None:
            self._stored = conversations.lock_or_create(self._connection, self._call)
            self._stored.fence("display", self._call.owner_epoch)
        return self._stored

    def _saved(
        self, message_id: str, items: Iterable[display_pb2.DisplayItem]
    ) -> list[display_pb2.DisplayMessage]:
        rows = self._of_message(message_id)
        if rows:
            return rows
        now = datetime.now(UTC)
        rows = [self._new_row(message_id, item, now) for item in items]
        if rows:
            key = self._conversation().conversation_key
            self._connection.execute(_INSERT, [_columns(key, row, now) for row in rows])
        return sorted(rows, key=lambda row: row.sequence)

    def _new_row(
        self, message_id: str, item: display_pb2.DisplayItem, now: datetime
    ) -> display_pb2.DisplayMessage:
        conversation = self._conversation()
        conversation.last_position += 1
        conversation.last_change += 1
        self._is_changed = True
        row = display_pb2.DisplayMessage(
            display_message_id=uuid.uuid4().hex,
            position=conversation.last_position,
            change=conversation.last_change,
            message_id=message_id,
            sequence=item.sequence,
            type=item.type,
            content=item.content,
        )
        if item.content.HasField("tool_call"):
            row.tool_status = display_pb2.TOOL_STATUS_PENDING
        if item.HasField("metadata"):
            row.metadata.CopyFrom(item.metadata)
        _identify(row, conversation, now)
        return row

    def _of_message(self, message_id: str) -> list[display_pb2.DisplayMessage]:
        return self._read(_OF_MESSAGE, {"message": message_id})

    def _of_call(
        self, kind: str, message_id: str, call_id: str
    ) -> list[display_pb2.DisplayMessage]:
        return self._read(_OF_CALL, {"message": message_id, "kind": kind, "call": call_id})

    def _read(
        self, statement: Select[tuple[object, ...]], wanted: dict[str, object]
    ) -> list[display_pb2.DisplayMessage]:
        conversation = self._stored
        if conversation is None:
            return []
        wanted["key"] = conversation.conversation_key
        return [_row(conversation, each) for each in self._connection.execute(statement, wanted)]

    def _update(self, row: display_pb2.DisplayMessage) -> None:
        conversation = self._conversation()
        conversation.last_change += 1
        self._is_changed = True
        row.change = conversation.last_change
        values = content.encoded(row)
        self._connection.execute(
            _UPDATE,
            {
                "key": conversation.conversation_key,
                "at": row.position,
                "change": row.change,
                "tool_status": _status_name(row),
                "content": values["content"],
                "tool_info": values["tool_info"],
                "exact": values["exact"],
            },
        )


def list_rows(
    connection: Connection, call: Call, request: pb.ListDisplayMessagesRequest
) -> pb.ListDisplayMessagesResponse:
    """Returns a page of rows: at most `page_size`, at most 1 MiB, at least one if there is one.

    Raises:
        StateCorruptError: if a row of the page cannot be read.
    """
    conversation = conversations.read(connection, call)
    page = pb.DisplayMessagePage()
    if conversation is None:
        return pb.ListDisplayMessagesResponse(page=page)
    limit = request.page_size or DEFAULT_PAGE_SIZE
    size = 0
    # Rows are fetched one by one: a page of large rows is never in memory as a whole.
    with connection.execute(
        _page_statement(request), _page_arguments(conversation, request, limit + 1)
    ) as rows:
        for each in rows:
            row = _row(conversation, each)
            size += row.ByteSize()
            if page.display_messages and (
                len(page.display_messages) == limit or size > MAX_PAGE_BYTES
            ):
                page.has_more = True
                break
            page.display_messages.append(row)
    return pb.ListDisplayMessagesResponse(page=page)


_POSITION = display_messages.c.position
_CHANGE = display_messages.c.change
_COUNT: BindParameter[int] = bindparam("count")
# Order → the statement from the beginning and the one after a value.
_PAGES = {
    pb.LIST_ORDER_POSITION_ASCENDING: (
        _ROWS.order_by(_POSITION).limit(_COUNT),
        _ROWS.where(bindparam("after") < _POSITION).order_by(_POSITION).limit(_COUNT),
    ),
    pb.LIST_ORDER_POSITION_DESCENDING: (
        _ROWS.order_by(_POSITION.desc()).limit(_COUNT),
        _ROWS.where(bindparam("after") > _POSITION).order_by(_POSITION.desc()).limit(_COUNT),
    ),
    pb.LIST_ORDER_CHANGE_ASCENDING: (
        _ROWS.order_by(_CHANGE).limit(_COUNT),
        _ROWS.where(bindparam("after") < _CHANGE).order_by(_CHANGE).limit(_COUNT),
    ),
}


def _page_statement(request: pb.ListDisplayMessagesRequest) -> Select[tuple[object, ...]]:
    return _PAGES[request.order][request.HasField("after")]


def _page_arguments(
    conversation: Conversation, request: pb.ListDisplayMessagesRequest, count: int
) -> dict[str, object]:
    wanted: dict[str, object] = {"key": conversation.conversation_key, "count": count}
    if request.HasField("after"):
        wanted["after"] = request.after
    return wanted


# Any: a row of the table's columns.
def _row(conversation: Conversation, stored: Row[tuple[object, ...]]) -> display_pb2.DisplayMessage:
    try:
        row = display_pb2.DisplayMessage(
            display_message_id=stored.display_message_id,
            position=stored.position,
            change=stored.change,
            message_id=stored.message_id,
            sequence=stored.sequence,
            type=TYPES.number(stored.type),  # type: ignore[arg-type]  # later values are kept
        )
        if stored.tool_status is not None:
            row.tool_status = TOOL_STATUSES.number(stored.tool_status)  # type: ignore[assignment]  # as type
        content.decode(stored, row)
        _identify(row, conversation, stored.inserted_at)
    except (content.UnreadableError, ValueError, TypeError) as error:
        raise StateCorruptError(
            conversation.conversation_id, f"the row at position {stored.position} is damaged"
        ) from error
    return row


def _identify(
    row: display_pb2.DisplayMessage, conversation: Conversation, inserted_at: datetime
) -> None:
    row.insert_time.FromDatetime(inserted_at)
    row.tenant = conversation.tenant
    row.partition = conversation.partition
    row.conversation_id = conversation.conversation_id


def _columns(key: int, row: display_pb2.DisplayMessage, now: datetime) -> dict[str, object]:
    return {
        "conversation_key": key,
        "position": row.position,
        "change": row.change,
        "display_message_id": row.display_message_id,
        "message_id": row.message_id,
        "sequence": row.sequence,
        "type": TYPES.name(row.type),
        "tool_status": _status_name(row),
        "inserted_at": now,
        **content.encoded(row),
    }


def _status_name(row: display_pb2.DisplayMessage) -> str | None:
    return TOOL_STATUSES.name(row.tool_status) if row.tool_status else None
