"""For each case of AgentPersistenceService a store that fails it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
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
    sanitized,
    scoped,
)

_SAVED = pb.AppendStateResponse(saved=pb.StateSaved())
_FOUR_MIB = 4 * 1024 * 1024


def _reformat(request: Any) -> None:
    request.state.json = json.dumps(json.loads(request.state.json))


def _absent_is_not_found(response: Any, _request: Any) -> None:
    if response.HasField("absent"):
        raise refusal(grpc.StatusCode.NOT_FOUND)


def _found(edit: Callable[[Any], object]) -> Edits:
    def change(response: Any, _request: Any) -> None:
        if response.HasField("found"):
            edit(response.found)

    return Edits("LoadState", response=change)


def _absent(edit: Callable[[Any], object]) -> Edits:
    def change(response: Any, _request: Any) -> None:
        if response.HasField("absent"):
            edit(response.absent)

    return Edits("LoadState", response=change)


def _epoch(change: Callable[[int], int]) -> Edits:
    def edit(response: Any, _request: Any) -> None:
        arm = getattr(response, response.WhichOneof("outcome"))
        arm.owner_epoch = change(arm.owner_epoch)

    return Edits("LoadState", response=edit)


def _previous_owner(change: Callable[[str, Any], str]) -> Edits:
    def edit(response: Any, request: Any) -> None:
        arm = getattr(response, response.WhichOneof("outcome"))
        arm.previous_owner = change(arm.previous_owner, request)

    return Edits("LoadState", response=edit)


def _sets(**values: object) -> Callable[[Any], None]:
    def edit(message: Any) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return edit


def _always_claims(request: Any) -> None:
    request.claim.owner_id = request.claim.owner_id or "reader"


def _claims_anew() -> Edits:
    numbers = itertools.count()

    def edit(request: Any) -> None:
        if request.HasField("claim"):
            request.context.request_id += f"-{next(numbers)}"

    return Edits("LoadState", request=edit)


def _renumbers(name: str) -> Edits:
    """Takes writes in the order in which they come."""
    numbers = itertools.count(1)
    return Edits(name, request=lambda request: setattr(request, "revision", next(numbers)))


def _needs_full_is_saved(response: Any, _request: Any) -> None:
    if response.HasField("needs_full"):
        response.saved.revision = 1


def _raised(request: Any) -> None:
    request.revision = max(request.revision, request.expected_revision + 1)


def _with_patch(request: Any) -> None:
    if not request.HasField("patch"):
        request.patch.media_type, request.patch.json = "application/json", "[]"


def _with_state(request: Any) -> None:
    text = request.state.data.decode() or request.state.json or "{}"
    request.state.media_type, request.state.json = "application/json", text


def _with_owner(request: Any) -> None:
    if request.HasField("claim"):
        request.claim.owner_id = sanitized(request.claim.owner_id)


def _with_tenant(scope: Any) -> None:
    scope.tenant = sanitized(scope.tenant)


def _with_conversation(request: Any) -> None:
    request.context.conversation_id = sanitized(request.context.conversation_id)


def _payload_in_key(scope: Any) -> None:
    scope.tenant += scope.payload.decode()


def _agent_in_key(request: Any) -> None:
    request.context.conversation_id += request.context.agent_id


def _unscoped_in_tenant(request: Any) -> None:
    if request.context.scope.HasField("unscoped"):
        request.context.scope.scoped.tenant = "unscoped"


def _default_partition(scope: Any) -> None:
    scope.partition = scope.partition or "user-1"


def _unscoped_tenant(response: Any, _request: Any) -> None:
    if response.HasField("found") and not response.found.tenant:
        response.found.tenant = "unscoped"


@dataclass
class _KeepsFirst(Fault):
    """Saves the first state of a conversation and no later one."""

    seen: set[str] = field(default_factory=set)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        key = request.context.conversation_id
        if name == "PersistState":
            if key in self.seen:
                saved = pb.StateSaved(revision=request.revision)
                return pb.PersistStateResponse(request_id=request.context.request_id, saved=saved)
            self.seen.add(key)
        return await send(name, request)


@dataclass
class _StickyRelease(Fault):
    """Never forgets that a conversation was given up."""

    released: bool = False

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        response = await send(name, request)
        if name == "LoadState" and response.HasField("found"):
            self.released = response.found.released = response.found.released or self.released
        return response


@dataclass
class _KeepsPatches(Fault):
    """Keeps the patches that a full state replaces, and each patch as often as it was sent."""

    sent: list[pb.StatePatch] = field(default_factory=list)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        response = await send(name, request)
        if name == "AppendState" and response.HasField("saved"):
            self.sent.append(pb.StatePatch(revision=request.revision, patch=request.patch))
        if name == "LoadState" and response.HasField("found"):
            del response.found.patches[:]
            response.found.patches.extend(self.sent)
        return response


@dataclass
class _AppendsAnyway(Fault):
    """Does not compare the revision that a patch was made against."""

    current: int = 0

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == "PersistState":
            self.current = request.revision
        if name == "AppendState":
            request.expected_revision = self.current
        return await send(name, request)


@dataclass
class _FlagNeedsState(Fault):
    """Keeps the flag beside the state only."""

    has_state: bool = False

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        self.has_state = self.has_state or name == "PersistState"
        if name == "SetInterrupted" and not self.has_state:
            raise refusal(grpc.StatusCode.FAILED_PRECONDITION)
        return await send(name, request)


@dataclass
class _FlagByRevision(Fault):
    """Orders the flag by revision, whatever the epoch."""

    highest: int = 0

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == "SetInterrupted":
            if request.revision <= self.highest:
                applied = pb.InterruptedApplied()
                request_id = request.context.request_id
                return pb.SetInterruptedResponse(request_id=request_id, applied=applied)
            self.highest = request.revision
        return await send(name, request)


@dataclass
class _RefusesRepetition(Fault):
    """Refuses what it has already."""

    seen: Counter[str] = field(default_factory=Counter)

    async def answer(self, name: str, request: Any, send: Send) -> Any:
        if name == "PersistState":
            key = f"{request.context.conversation_id} {request.revision}"
            self.seen[key] += 1
            if self.seen[key] > 1:
                raise refusal(grpc.StatusCode.ALREADY_EXISTS)
        return await send(name, request)


FAULTS: dict[str, Callable[[], Fault]] = {
    "missing_state_is_absent": lambda: Edits("LoadState", response=_absent_is_not_found),
    "unclaimed_conversation_has_epoch_0": lambda: _absent(_sets(owner_epoch=1)),
    "persist_is_saved": lambda: Edits(
        "PersistState", response=lambda response, _: _sets(revision=1)(response.saved)
    ),
    "request_id_is_repeated": lambda: Edits(
        response=lambda response, _: _sets(request_id="other")(response)
    ),
    "state_is_kept_verbatim": lambda: Edits("PersistState", request=_reformat),
    "media_type_is_kept": lambda: _found(
        lambda found: _sets(media_type="application/json")(found.base)
    ),
    "schema_version_is_kept": lambda: _found(_sets(schema_version=1)),
    "base_revision_is_kept": lambda: _found(_sets(base_revision=1)),
    "identity_is_as_stored": lambda: _found(_sets(partition="")),
    "unscoped_state_has_no_tenant": lambda: Edits("LoadState", response=_unscoped_tenant),
    "higher_revision_replaces": _KeepsFirst,
    "unknown_lifecycle_is_saved": lambda: Refuses(
        "PersistState", lambda request: request.lifecycle not in pb.Lifecycle.values()
    ),
    "unknown_fields_are_tolerated": lambda: Refuses(
        "PersistState", lambda request: len(UnknownFieldSet(request)) > 0
    ),
    "large_state_is_kept": lambda: Refuses(
        "PersistState",
        lambda request: request.ByteSize() > _FOUR_MIB,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    "release_is_reported": lambda: Edits("PersistState", request=_sets(release=False)),
    "claim_forgets_release": _StickyRelease,
    "unreleased_state_is_not_released": lambda: _found(_sets(released=True)),
    "previous_owner_is_reported": lambda: _previous_owner(lambda _owner, _request: ""),
    "first_claim_has_no_previous_owner": lambda: _previous_owner(
        lambda owner, request: owner or request.claim.owner_id
    ),
    "absent_state_can_be_claimed": lambda: _absent(_sets(owner_epoch=0)),
    "claim_raises_the_epoch": lambda: _epoch(lambda epoch: epoch * 2),
    "reading_claims_nothing": lambda: Edits("LoadState", request=_always_claims),
    "patches_are_kept_in_order": lambda: _found(lambda found: found.patches.reverse()),
    "full_state_replaces_patches": _KeepsPatches,
    "patch_of_nothing_needs_full": lambda: Edits("AppendState", response=_needs_full_is_saved),
    "patch_of_other_revision_needs_full": _AppendsAnyway,
    "patch_must_raise_the_revision": lambda: Edits("AppendState", request=_raised),
    "patch_is_required": lambda: Edits("AppendState", request=_with_patch),
    "flag_is_kept": lambda: _found(lambda found: found.ClearField("interrupted")),
    "flag_is_unset_at_first": lambda: _found(
        lambda found: _sets(interrupted=found.interrupted)(found)
    ),
    "flag_needs_no_state": _FlagNeedsState,
    "flag_needs_a_revision": lambda: _renumbers("SetInterrupted"),
    "state_is_required": lambda: Edits("PersistState", request=_with_state),
    "state_of_bytes_is_refused": lambda: Edits("PersistState", request=_with_state),
    "schema_version_is_required": lambda: Edits("PersistState", request=_sets(schema_version=1)),
    "revision_is_required": lambda: _renumbers("PersistState"),
    "owner_id_is_checked": lambda: Edits("LoadState", request=_with_owner),
    "scope_is_required": lambda: Edits(request=guessed_scope),
    "tenant_is_checked": lambda: scoped(_with_tenant),
    "conversation_id_is_checked": lambda: Edits(request=_with_conversation),
    "conversations_do_not_meet": lambda: Edits(request=one_conversation),
    "repeated_state_is_saved": _RefusesRepetition,
    "repeated_revision_changes_nothing": lambda: _renumbers("PersistState"),
    "lower_revision_is_refused": lambda: _renumbers("PersistState"),
    "conflict_names_the_revision": BareErrors,
    "repeated_claim_has_one_epoch": _claims_anew,
    "repeated_claim_has_one_answer": _claims_anew,
    "repeated_patch_is_saved_once": _KeepsPatches,
    "lower_patch_is_refused": lambda: Forgives("AppendState", _SAVED),
    "lower_flag_changes_nothing": lambda: _renumbers("SetInterrupted"),
    "flag_of_a_later_epoch_counts": _FlagByRevision,
    "stale_state_is_refused": Unfenced,
    "stale_epoch_names_the_current": BareErrors,
    "epoch_is_checked_first": Unfenced,
    "repeated_stale_state_is_refused": Unfenced,
    "stale_patch_is_refused": Unfenced,
    "stale_flag_is_refused": Unfenced,
    "concurrent_claims_have_their_own_epochs": lambda: _epoch(lambda _: 1),
    "concurrent_writes_keep_the_highest": _KeepsFirst,
    "tenants_do_not_meet": lambda: scoped(_sets(tenant="all")),
    "partitions_do_not_meet": lambda: scoped(_sets(partition="")),
    "empty_partition_is_no_wildcard": lambda: scoped(_default_partition),
    "unscoped_sees_no_tenant": LeaksUnscoped,
    "no_tenant_means_unscoped": lambda: Edits(request=_unscoped_in_tenant),
    "joined_identities_do_not_collide": lambda: scoped(joined_identity),
    "payload_is_not_in_the_key": lambda: scoped(_payload_in_key),
    "agent_id_is_not_in_the_key": lambda: Edits(request=_agent_in_key),
}
"""Case, without its group → a store that fails it."""
