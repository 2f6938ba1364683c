"""For each case of DisplayMessagePersistenceService a store that fails it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet

from sagentry.api.plugin.v1 import display_message_persistence_pb2 as pb
from sagentry.api.type.v1 import display_pb2
from tests.support.broken_store import (
    BareErrors,
    Edits,
    Fault,
    Forgives,
    LeaksUnscoped,
    Refuses,
    Send,
    Unfenced,
    guessed_scope,
    joined_identity,
    one_conversation,
    refusal,
    rows_of,
    sanitized,
    scoped,
)

_SAVE = "SaveMessage"
_UPDATE = "UpdateToolStatus"
_RESOLVE = "ResolveToolResult"
_SYNTHETIC = "SaveSyntheticMessage"
_LIST = "ListDisplayMessages"
_APPLY = "ApplyWrites"
_APPLIED = pb.ApplyWritesResponse(applied=pb.WritesApplied())


def _sets(**values: object) -> Callable[[Any], None]:
    def edit(message: Any) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return edit


def _rows(edit: Callable[[Any], object], names: str = "") -> Edits:
    def change(response: Any, _request: Any) -> None:
        for row in rows_of(response):
            edit(row)

    return Edits(names, response=change)


def _items(edit: Callable[[Any], object]) -> Edits:
    def change(request: Any) -> None:
        for item in request.items:
            edit(item)

    return Edits(_SAVE, request=change)


def _reformat_document(document: Any) -> None:
    if document.HasField("json"):
        document.json = json.dumps(json.loads(document.json))


def _reformat_arguments(item: Any) -> None:
    call = item.content.tool_call
    call.arguments_json = json.dumps(json.loads(call.arguments_json))


def _unscoped_row(row: Any) -> None:
    row.tenant = row.tenant or "unscoped"


def _always_has_status(row: Any) -> None:
    row.tool_status = row.tool_status or display_pb2.TOOL_STATUS_COMPLETED


def _known_type(item: Any) -> None:
    if item.type not in display_pb2.DisplayMessageType.values():
        item.type = display_pb2.DISPLAY_MESSAGE_TYPE_SYSTEM


def _typed(item: Any) -> None:
    item.type = item.type or display_pb2.DISPLAY_MESSAGE_TYPE_SYSTEM


def _filled(item: Any) -> None:
    item.content.SetInParent()


def _replaces_info(response: Any, request: Any) -> None:
    response.updated.display_message.tool_info.CopyFrom(request.tool_info)


def _merges_always(response: Any, request: Any) -> None:
    response.updated.display_message.tool_info.MergeFrom(request.tool_info)


def _any_step(response: Any, request: Any) -> None:
    response.updated.display_message.tool_status = request.status


def _no_match_is_not_found(response: Any, _request: Any) -> None:
    if response.HasField("no_match"):
        raise refusal(grpc.StatusCode.NOT_FOUND)


def _matches_always(response: Any, _request: Any) -> None:
    if response.HasField("no_match"):
        response.updated.SetInParent()


def _with_content(request: Any) -> None:
    request.content.call_id = request.call_id


def _synthetic_filled(request: Any) -> None:
    request.message_id = request.message_id or "x"
    _filled(request.item)
    _typed(request.item)


def _message_filled(request: Any) -> None:
    request.message.message_id = sanitized(request.message.message_id)


def _update_filled(request: Any) -> None:
    request.message_id, request.call_id = request.message_id or "x", request.call_id or "x"
    request.status = request.status or display_pb2.TOOL_STATUS_EXECUTING


def _with_conversation(request: Any) -> None:
    request.context.conversation_id = sanitized(request.context.conversation_id)


def _reversed_rows(response: Any, _request: Any) -> None:
    response.page.display_messages.reverse()


def _by_position(request: Any) -> None:
    request.order = pb.LIST_ORDER_POSITION_ASCENDING


def _not_strict(request: Any) -> None:
    if request.HasField("after"):
        request.after -= 1


def _zero_is_one(request: Any) -> None:
    if request.HasField("after"):
        request.after = max(request.after, 1)


def _always_more(response: Any, _request: Any) -> None:
    response.page.has_more = True


def _fifty(request: Any) -> None:
    request.page_size = request.page_size or 50


def _list_filled(request: Any) -> None:
    request.order = request.order or pb.LIST_ORDER_POSITION_ASCENDING
    request.page_size = min(max(request.page_size, 0), 1000)


def _empty_is_not_found(response: Any, _request: Any) -> None:
    if not response.page.display_messages:
        raise refusal(grpc.StatusCode.NOT_FOUND)


def _without_nul(row: Any) -> None:
    row.content.text.text = row.content.text.text.replace("\0", "")


def _cut(row: Any) -> None:
    row.content.text.text = row.content.text.text[:65536]


def _last_outcome_lost(response: Any, _request: Any) -> None:
    for result in response.applied.results:
        del result.outcomes.outcomes[-1]


def _reversed_writes(request: Any) -> None:
    for group in request.groups:
        group.writes.reverse()


def _all_or_none(response: Any, _request: Any) -> None:
    if any(result.HasField("error") for result in response.applied.results):
        for result in response.applied.results:
            result.error.code = 3


def _errors_hidden(response: Any, _request: Any) -> None:
    for result in response.applied.results:
        if result.HasField("error"):
            result.outcomes.SetInParent()


def _reversed_results(response: Any, _request: Any) -> None:
    response.applied.results.reverse()


def _renames(names: str) -> Edits:
    """Makes a new message of each call."""
    numbers = itertools.count()

    def rename(message: Any) -> None:
        message.message_id += f"-{next(numbers)}"

    def edit(request: Any) -> None:
        for group in getattr(request, "groups", ()):
            for write in group.writes:
                rename(write.save_message.message)
        if names == _SAVE:
            rename(request.message)
        if names == _SYNTHETIC:
            rename(request)

    return Edits(names, request=edit)


class _HalfGroups(Fault):
    """Does the writes of a group that can be done, and then says that the group failed."""

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name != _APPLY:
            return await send(name, request)
        broken = set()
        for index, group in enumerate(request.groups):
            kept = [write for write in group.writes if write.WhichOneof("write")]
            if len(kept) < len(group.writes):
                broken.add(index)
                del group.writes[:]
                group.writes.extend(kept)
        response = await send(name, request)
        for index in broken:
            response.applied.results[index].error.code = 3
        return response


class _FollowsWrites(Fault):
    """Takes the context of a write for the context of its group."""

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == _APPLY:
            for group in request.groups:
                for write in group.writes:
                    if write.save_message.HasField("context"):
                        group.context.CopyFrom(write.save_message.context)
                        write.save_message.ClearField("context")
        return await send(name, request)


class _EndlessPages(Fault):
    """Does not look at the size of a page."""

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        response = await send(name, request)
        while name == _LIST and response.page.has_more:
            request.after = response.page.display_messages[-1].position
            more = (await send(name, request)).page
            response.page.display_messages.extend(more.display_messages)
            response.page.has_more = more.has_more
        return response


@dataclass
class _ShowsLate(Fault):
    """Shows some rows only after later ones."""

    shown: set[int] = field(default_factory=set)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        response = await send(name, request)
        if name == _LIST and len(rows := response.page.display_messages) > 1:
            fresh = [row.change for row in rows if row.change not in self.shown]
            self.shown.update(fresh)
            if len(fresh) > 1:
                kept = [row for row in rows if row.change != fresh[0]]
                del rows[:]
                rows.extend(kept)
        return response


@dataclass
class _CountsLists(Fault):
    """Writes when it is read."""

    lists: int = 0

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        response = await send(name, request)
        if name == _LIST:
            self.lists += 1
            for row in response.page.display_messages:
                row.change += self.lists
        return response


@dataclass
class _Caches(Fault):
    """Answers a repeated save from memory."""

    saved: dict[str, Any] = field(default_factory=dict)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name != _SAVE:
            return await send(name, request)
        key = request.message.message_id
        if key not in self.saved:
            self.saved[key] = await send(name, request)
        self.saved[key].request_id = request.context.request_id
        return self.saved[key]


@dataclass
class _Once(Fault):
    """Does something once for each conversation.

    Attributes:
        name: The method.
        again: What a repetition gets; None refuses it.
    """

    name: str
    again: Any = None
    seen: set[str] = field(default_factory=set)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == self.name:
            key = request.context.conversation_id
            if key in self.seen:
                if self.again is None:
                    raise refusal(grpc.StatusCode.ALREADY_EXISTS)
                return self.again
            self.seen.add(key)
        return await send(name, request)


_NO_MATCH = pb.ResolveToolResultResponse(no_match=pb.DisplayMessageNoMatch())
_LATER_STATUS = 6

FAULTS: dict[str, Callable[[], Fault]] = {
    "message_is_saved": lambda: Edits(
        _SAVE, response=lambda response, _: response.ClearField("saved")
    ),
    "request_id_is_repeated": lambda: Edits(
        response=lambda response, _: _sets(request_id="other")(response)
    ),
    "identity_is_as_stored": lambda: _rows(_sets(partition="")),
    "unscoped_row_has_no_tenant": lambda: _rows(_unscoped_row),
    "rows_name_their_message": lambda: _rows(_sets(message_id="other")),
    "row_ids_are_unique": lambda: _rows(_sets(display_message_id="same")),
    "rows_come_by_sequence": lambda: Edits(
        _SAVE, response=lambda response, _: response.saved.display_messages.reverse()
    ),
    "positions_ascend": lambda: _rows(_sets(position=1)),
    "changes_ascend": lambda: _rows(_sets(change=1)),
    "insert_time_is_set": lambda: _rows(lambda row: row.ClearField("insert_time")),
    "calls_begin_as_pending": lambda: _rows(
        _sets(tool_status=display_pb2.TOOL_STATUS_EXECUTING), _SAVE
    ),
    "only_calls_have_a_status": lambda: _rows(_always_has_status),
    "arguments_are_kept_verbatim": lambda: _items(_reformat_arguments),
    "custom_content_is_kept_verbatim": lambda: _items(
        lambda item: _reformat_document(item.content.custom.document)
    ),
    "metadata_is_kept_verbatim": lambda: _items(lambda item: _reformat_document(item.metadata)),
    "unknown_content_is_saved": lambda: _rows(lambda row: row.content.DiscardUnknownFields()),
    "unknown_type_is_saved": lambda: _items(_known_type),
    "unknown_fields_are_tolerated": lambda: Refuses(
        _SAVE, lambda request: len(UnknownFieldSet(request)) > 0
    ),
    "status_moves": lambda: _rows(_sets(tool_status=display_pb2.TOOL_STATUS_PENDING), _UPDATE),
    "update_takes_a_change": lambda: _rows(_sets(change=1), _UPDATE),
    "tool_info_is_merged": lambda: Edits(_UPDATE, response=_replaces_info),
    "unknown_call_does_not_match": lambda: Edits(_UPDATE, response=_no_match_is_not_found),
    "result_row_has_no_status": lambda: Edits(_UPDATE, response=_matches_always),
    "result_is_resolved": lambda: _rows(
        lambda row: _sets(text="waiting")(row.content.tool_result), _RESOLVE
    ),
    "finished_result_does_not_match": lambda: Edits(_RESOLVE, response=_matches_always),
    "resolved_content_is_required": lambda: Edits(_RESOLVE, request=_with_content),
    "synthetic_message_is_saved": lambda: _rows(_sets(message_id="other"), _SYNTHETIC),
    "synthetic_message_is_checked": lambda: Edits(_SYNTHETIC, request=_synthetic_filled),
    "open_tells_the_counters": lambda: Edits(
        "OpenConversation", response=lambda response, _: _sets(last_change=0)(response.opened)
    ),
    "message_is_required": lambda: Edits(_SAVE, request=_message_filled),
    "message_id_is_checked": lambda: Edits(_SAVE, request=_message_filled),
    "item_type_is_required": lambda: _items(_typed),
    "item_content_is_required": lambda: _items(_filled),
    "update_is_checked": lambda: Edits(_UPDATE, request=_update_filled),
    "scope_is_required": lambda: Edits(request=guessed_scope),
    "conversation_id_is_checked": lambda: Edits(request=_with_conversation),
    "list_is_by_position": lambda: Edits(_LIST, response=_reversed_rows),
    "list_is_by_position_backwards": lambda: Edits(_LIST, response=_reversed_rows),
    "list_is_by_change": lambda: Edits(_LIST, request=_by_position),
    "list_has_the_rows": lambda: _rows(_sets(tool_status=0), _LIST),
    "list_begins_after_a_position": lambda: Edits(_LIST, request=_not_strict),
    "list_begins_after_a_change": lambda: Edits(_LIST, request=_not_strict),
    "list_has_ends": lambda: Edits(_LIST, request=_zero_is_one),
    "pages_have_a_size": lambda: Edits(_LIST, response=_always_more),
    "pages_have_100_rows": lambda: Edits(_LIST, request=_fifty),
    "list_only_reads": _CountsLists,
    "unknown_conversation_has_no_rows": lambda: Edits(_LIST, response=_empty_is_not_found),
    "list_is_checked": lambda: Edits(_LIST, request=_list_filled),
    "pages_end_at_1_mib": _EndlessPages,
    "text_survives": lambda: _rows(_without_nul, _LIST),
    "large_text_survives": lambda: _rows(_cut, _LIST),
    "groups_have_their_results": lambda: Edits(_APPLY, response=_reversed_results),
    "writes_have_their_outcomes": lambda: Edits(_APPLY, response=_last_outcome_lost),
    "writes_are_in_order": lambda: Edits(_APPLY, request=_reversed_writes),
    "groups_are_counted": lambda: Forgives(_APPLY, _APPLIED),
    "unknown_write_fails_its_group": lambda: Edits(_APPLY, response=_errors_hidden),
    "groups_are_atomic": _HalfGroups,
    "groups_are_independent": lambda: Edits(_APPLY, response=_all_or_none),
    "repeated_groups_change_nothing": lambda: _renames(_APPLY),
    "repeated_message_has_its_rows": lambda: _renames(_SAVE),
    "repeated_message_writes_nothing": lambda: _renames(_SAVE),
    "repeated_message_has_updated_rows": _Caches,
    "repeated_synthetic_message_is_one_row": lambda: _renames(_SYNTHETIC),
    "conversation_opens_again": lambda: _Once("OpenConversation"),
    "repeated_step_changes_nothing": lambda: Edits(_UPDATE, response=_merges_always),
    "open_calls_can_end": lambda: Refuses(
        _UPDATE, lambda request: request.status == display_pb2.TOOL_STATUS_CANCELLED
    ),
    "ended_calls_stay": lambda: Edits(_UPDATE, response=_any_step),
    "interrupted_call_does_not_execute": lambda: Edits(_UPDATE, response=_any_step),
    "calls_do_not_become_pending": lambda: Edits(_UPDATE, response=_any_step),
    "unknown_status_changes_nothing": lambda: Refuses(
        _UPDATE, lambda request: request.status > _LATER_STATUS
    ),
    "repeated_resolution_changes_nothing": lambda: _Once(_RESOLVE, _NO_MATCH),
    "second_answer_does_not_match": lambda: Edits(_RESOLVE, response=_matches_always),
    "stale_message_is_refused": Unfenced,
    "stale_epoch_names_the_current": BareErrors,
    "repeated_stale_message_is_refused": Unfenced,
    "stale_update_is_refused": Unfenced,
    "stale_opening_is_refused": Unfenced,
    "stale_resolution_is_refused": Unfenced,
    "stale_synthetic_message_is_refused": Unfenced,
    "stale_group_fails_alone": Unfenced,
    "write_cannot_leave_its_group": _FollowsWrites,
    "concurrent_saves_are_one": lambda: _renames(_SAVE),
    "concurrent_rows_have_their_own_places": lambda: _rows(_sets(position=1)),
    "changes_become_visible_in_order": _ShowsLate,
    "tenants_do_not_meet": lambda: scoped(_sets(tenant="all")),
    "partitions_do_not_meet": lambda: scoped(_sets(partition="")),
    "unscoped_sees_no_tenant": LeaksUnscoped,
    "joined_identities_do_not_collide": lambda: scoped(joined_identity),
    "conversations_do_not_meet": lambda: Edits(request=one_conversation),
}
"""Case, without its group → a store that fails it."""
