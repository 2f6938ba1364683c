"""The operations of AgentPersistenceService, each inside a transaction of the caller.

Base and patches are opaque JSON text. What is returned is checked first: a text that is not the one that
was saved, or a chain of patches with a hole, is reported and never handed out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime

from google.protobuf.unknown_fields import UnknownFieldSet
from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
from sagentry.api.type.v1 import document_pb2
from sagentry.plugins.sdk import (
    Call,
    QuotaExceededError,
    RevisionConflictError,
    StateCorruptError,
)
from sagentry.plugins.sql import conversations
from sagentry.plugins.sql.conversations import Conversation
from sagentry.plugins.sql.names import LIFECYCLES
from sagentry.plugins.sql.schema import state_bases, state_patches

MAX_STATE_BYTES = 32 * 1024 * 1024 - 256 * 1024
"""Limit of a base with its patches. What is stored must fit into one answer of 32 MiB."""

_PATCH_OVERHEAD_BYTES = 64
"""What a patch takes in an answer beside its text and its media type."""

_BASE = select(state_bases).where(state_bases.c.conversation_key == bindparam("key"))
_PATCHES = (
    select(state_patches)
    .where(state_patches.c.conversation_key == bindparam("key"))
    .order_by(state_patches.c.revision)
)
_HAS_PATCH = select(state_patches.c.revision).where(
    state_patches.c.conversation_key == bindparam("key"),
    state_patches.c.revision == bindparam("of_revision"),
)
_DELETE_BASE = delete(state_bases).where(state_bases.c.conversation_key == bindparam("key"))
_DELETE_PATCHES = delete(state_patches).where(state_patches.c.conversation_key == bindparam("key"))
_INSERT_BASE = insert(state_bases)
_INSERT_PATCH = insert(state_patches)


def persist(
    connection: Connection, call: Call, request: pb.PersistStateRequest
) -> pb.PersistStateResponse:
    """Saves a whole state in the place of base and patches.

    Raises:
        StaleEpochError: if another owner has claimed the conversation.
        RevisionConflictError: if a later revision is stored, or this one by another owner.
        QuotaExceededError: if the state could not be loaded again.
    """
    size = _size(request.state)
    if size > MAX_STATE_BYTES:
        raise QuotaExceededError(limit=MAX_STATE_BYTES, actual=size)
    conversation = conversations.lock_or_create(connection, call)
    conversation.fence("state", call.owner_epoch)
    written = (call.owner_epoch, request.revision)
    stored = (conversation.state_revision_epoch, conversation.state_revision)
    if conversation.state_revision and written == stored:
        return pb.PersistStateResponse(saved=pb.StateSaved(revision=request.revision))
    if request.revision <= conversation.state_revision:
        raise RevisionConflictError(
            revision=request.revision, current_revision=conversation.state_revision
        )
    key = {"key": conversation.conversation_key}
    connection.execute(_DELETE_PATCHES, key)
    connection.execute(_DELETE_BASE, key)
    connection.execute(
        _INSERT_BASE,
        {
            "conversation_key": conversation.conversation_key,
            "revision": request.revision,
            "schema_version": request.schema_version,
            "lifecycle": LIFECYCLES.name(request.lifecycle),
            "state": request.state.json,
            "saved_at": datetime.now(UTC),
            **_columns(request.state),
        },
    )
    conversation.state_revision_epoch, conversation.state_revision = written
    conversation.state_bytes = size
    conversation.released = conversation.released or request.release
    conversations.store(connection, conversation, "state")
    return pb.PersistStateResponse(saved=pb.StateSaved(revision=request.revision))


def append(
    connection: Connection, call: Call, request: pb.AppendStateRequest
) -> pb.AppendStateResponse:
    """Adds a patch, or says that a full state is needed.

    Raises:
        StaleEpochError: if another owner has claimed the conversation.
        RevisionConflictError: if a later revision is stored, and not this one.
    """
    conversation = conversations.lock(connection, call)
    if conversation is None:
        return _needs_full(0)
    conversation.fence("state", call.owner_epoch)
    current = conversation.state_revision
    if not current:
        return _needs_full(0)
    if request.revision <= current:
        if not _is_stored(connection, conversation, request.revision):
            raise RevisionConflictError(revision=request.revision, current_revision=current)
        return pb.AppendStateResponse(saved=pb.StateSaved(revision=current))
    size = conversation.state_bytes + _size(request.patch)
    if request.expected_revision != current or size > MAX_STATE_BYTES:
        return _needs_full(current)
    connection.execute(
        _INSERT_PATCH,
        {
            "conversation_key": conversation.conversation_key,
            "revision": request.revision,
            "expected_revision": request.expected_revision,
            "patch": request.patch.json,
            "saved_at": datetime.now(UTC),
            **_columns(request.patch),
        },
    )
    conversation.state_revision = request.revision
    conversation.state_revision_epoch = call.owner_epoch
    conversation.state_bytes = size
    conversations.store(connection, conversation, "state")
    return pb.AppendStateResponse(saved=pb.StateSaved(revision=request.revision))


def set_interrupted(
    connection: Connection, call: Call, request: pb.SetInterruptedRequest
) -> pb.SetInterruptedResponse:
    """Sets the flag unless a later setting stands.

    Raises:
        StaleEpochError: if another owner has claimed the conversation.
    """
    conversation = conversations.lock_or_create(connection, call)
    conversation.fence("state", call.owner_epoch)
    setting = (call.owner_epoch, request.revision)
    if setting > (conversation.interrupted_epoch, conversation.interrupted_revision):
        conversation.interrupted_epoch, conversation.interrupted_revision = setting
        conversation.interrupted = request.interrupted
        conversations.store(connection, conversation, "state")
    return pb.SetInterruptedResponse(applied=pb.InterruptedApplied())


def claim(connection: Connection, call: Call, owner_id: str) -> pb.LoadStateResponse:
    """Takes ownership and loads the state; the last claim, repeated, gets its answer again.

    Raises:
        StateCorruptError: if what is stored cannot be read; then nothing is claimed.
    """
    conversation = conversations.lock_or_create(connection, call)
    is_repeated = (conversation.claim_request_id, conversation.owner_id) == (
        call.request_id,
        owner_id,
    )
    if not is_repeated:
        conversation.claim_request_id = call.request_id
        conversation.claim_previous_owner = conversation.owner_id
        conversation.claim_was_released = conversation.released
        conversation.state_epoch += 1
        conversation.owner_id = owner_id
        conversation.released = False
    response = _loaded(
        connection,
        conversation,
        previous_owner=conversation.claim_previous_owner,
        released=conversation.claim_was_released,
    )
    if not is_repeated:
        conversations.store(connection, conversation, "state")
    return response


def load(connection: Connection, call: Call) -> pb.LoadStateResponse:
    """Loads the state and changes nothing.

    Raises:
        StateCorruptError: if what is stored cannot be read.
    """
    conversation = conversations.read(connection, call)
    if conversation is None:
        return pb.LoadStateResponse(absent=pb.StateAbsent())
    return _loaded(
        connection,
        conversation,
        previous_owner=conversation.owner_id,
        released=conversation.released,
    )


def _loaded(
    connection: Connection, conversation: Conversation, *, previous_owner: str, released: bool
) -> pb.LoadStateResponse:
    epoch = conversation.state_epoch
    if not conversation.state_revision:
        absent = pb.StateAbsent(owner_epoch=epoch, previous_owner=previous_owner)
        return pb.LoadStateResponse(absent=absent)
    key = {"key": conversation.conversation_key}
    base = connection.execute(_BASE, key).one_or_none()
    if base is None:
        raise StateCorruptError(conversation.conversation_id, "the base is missing")
    found = pb.StateFound(
        base=_document(conversation, base, base.state),
        schema_version=base.schema_version,
        base_revision=base.revision,
        patches=_patches(conversation, base.revision, connection.execute(_PATCHES, key)),
        owner_epoch=epoch,
        previous_owner=previous_owner,
        released=released,
        interrupted=conversation.interrupted,
        tenant=conversation.tenant,
        partition=conversation.partition,
        conversation_id=conversation.conversation_id,
    )
    return pb.LoadStateResponse(found=found)


# Any: a row of the patches' columns.
def _patches(
    conversation: Conversation, base_revision: int, rows: Iterable[Row[tuple[object, ...]]]
) -> list[pb.StatePatch]:
    patches = []
    revision = base_revision
    for row in rows:
        if row.expected_revision != revision:
            raise StateCorruptError(
                conversation.conversation_id, f"the patch after revision {revision} is missing"
            )
        revision = row.revision
        document = _document(conversation, row, row.patch)
        patches.append(pb.StatePatch(revision=revision, patch=document))
    if revision != conversation.state_revision:
        raise StateCorruptError(
            conversation.conversation_id, f"the patch after revision {revision} is missing"
        )
    return patches


def _document(
    conversation: Conversation, row: Row[tuple[object, ...]], text: object
) -> document_pb2.Document:
    if not isinstance(text, str) or row.checksum not in (None, _checksum(text)):
        raise StateCorruptError(
            conversation.conversation_id, f"the text of revision {row.revision} is damaged"
        )
    document = document_pb2.Document.FromString(row.unknown_fields or b"")
    document.media_type = row.media_type
    document.json = text
    return document


def _columns(document: document_pb2.Document) -> dict[str, object]:
    return {
        "media_type": document.media_type,
        "checksum": _checksum(document.json),
        "unknown_fields": _unknown_fields(document),
    }


def _unknown_fields(document: document_pb2.Document) -> bytes | None:
    if not len(UnknownFieldSet(document)):
        return None
    rest = document_pb2.Document()
    rest.CopyFrom(document)
    rest.ClearField("media_type")
    rest.ClearField("json")
    return rest.SerializeToString()


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode())


def _size(document: document_pb2.Document) -> int:
    return document.ByteSize() + _PATCH_OVERHEAD_BYTES


def _is_stored(connection: Connection, conversation: Conversation, revision: int) -> bool:
    if revision == conversation.state_revision:
        return True
    wanted = {"key": conversation.conversation_key, "of_revision": revision}
    return connection.execute(_HAS_PATCH, wanted).one_or_none() is not None


def _needs_full(current_revision: int) -> pb.AppendStateResponse:
    needed = pb.FullStateNeeded(current_revision=current_revision)
    return pb.AppendStateResponse(needs_full=needed)
