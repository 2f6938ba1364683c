"""AgentPersistenceService, level 1: outcomes, what is kept, argument checks."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import grpc

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
from sagentry.api.type.v1 import document_pb2, scope_pb2
from sagentry.plugins.check.answer import SkippedError
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.methods import (
    AGENT_PERSISTENCE,
    APPEND_STATE,
    LOAD_STATE,
    PERSIST_STATE,
    SET_INTERRUPTED,
)
from sagentry.plugins.check.owned import (
    OwnedState,
    epoch_of,
    json_document,
    previous_owner_of,
)
from sagentry.plugins.check.session import Session

cases = Cases("agent_persistence", contract=AGENT_PERSISTENCE, level=Level.REQUIRED)

FENCING = "AGENT_PERSISTENCE_CAPABILITY_FENCING"
_UNKNOWN_LIFECYCLE = 99
_UNKNOWN_FIELD = b"\x82\xd3\x0e\x06future"  # field 30000, a string that no version knows yet
_LARGE = 5 * 1024 * 1024
_NESTING = 64
TRICKY = (
    '{ "b" :1,"a":  1e2, "big":12345678901234567890, "lone":"\\ud83d", "nul":"\\u0000",'
    f' "text":"שלום é 👩‍💻", "b":2, "deep":{"[" * _NESTING}{"]" * _NESTING} }}\n'
)
"""JSON that whoever parses and writes it again changes."""


def _persist(owned: OwnedState) -> pb.PersistStateRequest:
    return pb.PersistStateRequest(
        context=owned.context(),
        lifecycle=pb.LIFECYCLE_ON_COMPLETION,
        state=json_document("{}"),
        schema_version=1,
        revision=1,
    )


async def _refuses(session: Session, request: pb.PersistStateRequest, field: str) -> None:
    answer = await session.call(PERSIST_STATE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    answer.expect(
        field in answer.bad_fields,
        f"a BadRequest detail that names {field}",
        f"BadRequest fields {list(answer.bad_fields)}",
    )


@cases.case("A conversation without state is `absent`: the status NOT_FOUND never means that.")
async def missing_state_is_absent(session: Session) -> None:
    answer = await OwnedState.new(session).load()
    answer.expect(answer.ok().WhichOneof("outcome") == "absent", "the outcome absent")


@cases.case("StateAbsent.owner_epoch: the stored one without a claim, or 0.")
async def unclaimed_conversation_has_epoch_0(session: Session) -> None:
    answer = await OwnedState.new(session).load()
    answer.expect(epoch_of(answer.ok()) == 0, "owner_epoch 0")


@cases.case("PersistState answers `saved` with the revision that is stored now.")
async def persist_is_saved(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.persist(3)
    answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")
    answer.expect(answer.ok().saved.revision == 3, "revision 3")  # noqa: PLR2004  as sent


@cases.case("Every response repeats the request's request_id.")
async def request_id_is_repeated(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    for revision in (1, 2):
        request_id = session.name("request")
        saved = await owned.persist(revision, request_id=request_id)
        saved.expect(saved.ok().request_id == request_id, f"request_id {request_id}")
        loaded = await owned.claim(request_id=request_id)
        loaded.expect(loaded.ok().request_id == request_id, f"request_id {request_id}")
        owned = owned.at(epoch_of(loaded.ok()))


@cases.case("PersistStateRequest.state: kept verbatim, JSON text character by character.")
async def state_is_kept_verbatim(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.persist(1, TRICKY)
    answer.ok()
    found = await owned.found()
    answer.expect(found.base.json == TRICKY, f"base {TRICKY!r}", repr(found.base.json))


@cases.case("Document.media_type is kept with the state.")
async def media_type_is_kept(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    request = _persist(owned)
    request.state.media_type = "application/vnd.example+json"
    answer = await session.call(PERSIST_STATE, request)
    answer.ok()
    found = await owned.found()
    wanted = request.state.media_type
    answer.expect(found.base.media_type == wanted, wanted, repr(found.base.media_type))


@cases.case("schema_version: version of the state's format. Kept beside the state.")
async def schema_version_is_kept(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    request = _persist(owned)
    request.schema_version = 7
    answer = await session.call(PERSIST_STATE, request)
    answer.ok()
    found = await owned.found()
    answer.expect(found.schema_version == request.schema_version, "schema_version 7", str(found))


@cases.case("StateFound.base_revision: revision of the base.")
async def base_revision_is_kept(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.persist(12)
    answer.ok()
    found = await owned.found()
    answer.expect(found.base_revision == 12, "base_revision 12", str(found))  # noqa: PLR2004  as sent


@cases.case("StateFound: tenant, partition and conversation as stored.")
async def identity_is_as_stored(session: Session) -> None:
    owned = await OwnedState.claimed(session, session.scope(partition="user-1"))
    answer = await owned.persist(1)
    answer.ok()
    found = await owned.found()
    wanted = (owned.scope.scoped.tenant, "user-1", owned.conversation_id)
    got = (found.tenant, found.partition, found.conversation_id)
    answer.expect(got == wanted, f"identity {wanted}", str(got))


@cases.case("StateFound.tenant: empty for unscoped data.")
async def unscoped_state_has_no_tenant(session: Session) -> None:
    owned = await OwnedState.claimed(session, scope_pb2.Scope(unscoped=scope_pb2.Unscoped()))
    answer = await owned.persist(1)
    answer.ok()
    found = await owned.found()
    answer.expect(found.tenant == "", "an empty tenant", repr(found.tenant))


@cases.case("PersistState: a higher revision replaces what is stored.")
async def higher_revision_replaces(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1, '{"v":1}')).ok()
    answer = await owned.persist(5, '{"v":5}')
    answer.ok()
    found = await owned.found()
    answer.expect(found.base.json == '{"v":5}', 'base {"v":5}', str(found))


@cases.case("An unknown lifecycle is saved like any other.")
async def unknown_lifecycle_is_saved(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    request = _persist(owned)
    request.lifecycle = _UNKNOWN_LIFECYCLE  # type: ignore[assignment]  # a value of the future
    answer = await session.call(PERSIST_STATE, request)
    answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")


@cases.case("Fields that a plugin does not know may appear.")
async def unknown_fields_are_tolerated(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    raw = _persist(owned).SerializeToString() + _UNKNOWN_FIELD
    answer = await session.call_raw(PERSIST_STATE, raw, "PersistState with an unknown field")
    answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")


@cases.case("A stored state may exceed 4 MiB: a caller raises its receive limit to 32 MiB.")
async def large_state_is_kept(session: Session) -> None:
    limit = session.info.limits.max_request_bytes
    if limit and limit < 2 * _LARGE:
        raise SkippedError(f"the plugin takes requests of at most {limit} bytes")
    owned = await OwnedState.claimed(session)
    state = f'{{"text":"{"é" * (_LARGE // 2)}"}}'
    answer = await owned.persist(1, state)
    answer.ok()
    found = await owned.found()
    is_whole = found.base.json == state
    answer.expect(is_whole, "the state whole", f"{len(found.base.json)} characters")


@cases.case("StateFound.released: true when the owner before had given the conversation up.")
async def release_is_reported(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1, release=True)).ok()
    answer = await owned.claim()
    answer.expect(answer.ok().found.released, "released true")


@cases.case("With a claim LoadState forgets `released`.")
async def claim_forgets_release(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1, release=True)).ok()
    (await owned.claim()).ok()
    answer = await owned.claim()
    answer.expect(not answer.ok().found.released, "released false after the claim before")


@cases.case("StateFound.released: false when nothing was given up.")
async def unreleased_state_is_not_released(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    answer = await owned.claim()
    answer.expect(not answer.ok().found.released, "released false")


@cases.case("previous_owner: the owner before this claim.", needs=(FENCING,))
async def previous_owner_is_reported(session: Session) -> None:
    owned = OwnedState.new(session)
    (await owned.claim("server-a")).ok()
    answer = await owned.claim("server-b")
    answer.expect(previous_owner_of(answer.ok()) == "server-a", "previous_owner server-a")


@cases.case("previous_owner: empty if there never was one.", needs=(FENCING,))
async def first_claim_has_no_previous_owner(session: Session) -> None:
    answer = await OwnedState.new(session).claim("server-a")
    answer.expect(previous_owner_of(answer.ok()) == "", "an empty previous_owner")


@cases.case("It claims also where no state is stored.", needs=(FENCING,))
async def absent_state_can_be_claimed(session: Session) -> None:
    answer = await OwnedState.new(session).claim()
    answer.expect(answer.ok().WhichOneof("outcome") == "absent", "the outcome absent")
    answer.expect(epoch_of(answer.ok()) >= 1, "an owner_epoch from 1")


@cases.case("A claim raises the owner_epoch by one.", needs=(FENCING,))
async def claim_raises_the_epoch(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.claim()
    answer.expect(epoch_of(answer.ok()) == owned.epoch + 1, f"owner_epoch {owned.epoch + 1}")


@cases.case("Without a claim LoadState changes nothing.", needs=(FENCING,))
async def reading_claims_nothing(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    for _ in range(2):
        answer = await owned.load()
        answer.expect(epoch_of(answer.ok()) == owned.epoch, f"owner_epoch {owned.epoch}")


@cases.case(
    "AppendState adds a patch: patches by ascending revision, verbatim.",
    needs=(APPEND_STATE.capability,),
)
async def patches_are_kept_in_order(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    patches = [(2, TRICKY), (3, '[{"op":"b"}]'), (4, '[{"op":"a"}]')]
    for revision, patch in patches:
        answer = await owned.append(revision, patch)
        answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")
        answer.expect(answer.ok().saved.revision == revision, f"revision {revision}")
    found = await owned.found()
    got = [(patch.revision, patch.patch.json) for patch in found.patches]
    answer.expect(got == patches, f"patches {patches}", str(got))


@cases.case("A full PersistState replaces base and patches.", needs=(APPEND_STATE.capability,))
async def full_state_replaces_patches(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    (await owned.append(2)).ok()
    answer = await owned.persist(3)
    answer.ok()
    found = await owned.found()
    answer.expect(not found.patches and found.base_revision == 3, "base 3, no patch", str(found))  # noqa: PLR2004  as sent


@cases.case(
    "AppendState: `needs_full` when nothing is stored; current_revision 0 for none.",
    needs=(APPEND_STATE.capability,),
)
async def patch_of_nothing_needs_full(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.append(2)
    answer.expect(answer.ok().WhichOneof("outcome") == "needs_full", "the outcome needs_full")
    answer.expect(answer.ok().needs_full.current_revision == 0, "current_revision 0")


@cases.case(
    "`needs_full` when `expected_revision` is not the stored revision.",
    needs=(APPEND_STATE.capability,),
)
async def patch_of_other_revision_needs_full(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(4)).ok()
    answer = await owned.append(7, expected=6)
    answer.expect(answer.ok().WhichOneof("outcome") == "needs_full", "the outcome needs_full")
    answer.expect(answer.ok().needs_full.current_revision == 4, "current_revision 4")  # noqa: PLR2004  as sent
    found = await owned.found()
    answer.expect(not found.patches, "no patch stored", str(found))


@cases.case(
    "AppendStateRequest.revision: higher than `expected_revision`.",
    needs=(APPEND_STATE.capability,),
)
async def patch_must_raise_the_revision(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(4)).ok()
    answer = await owned.append(4, expected=4)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("AppendStateRequest.patch: required.", needs=(APPEND_STATE.capability,))
async def patch_is_required(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    request = pb.AppendStateRequest(context=owned.context(), expected_revision=1, revision=2)
    answer = await session.call(APPEND_STATE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "StateFound.interrupted: the stored flag of SetInterrupted.",
    needs=(SET_INTERRUPTED.capability,),
)
async def flag_is_kept(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    for revision, interrupted in ((1, True), (2, False)):
        answer = await owned.set_interrupted(revision, interrupted=interrupted)
        answer.expect(answer.ok().WhichOneof("outcome") == "applied", "the outcome applied")
        found = await owned.found()
        answer.expect(
            found.HasField("interrupted") and found.interrupted is interrupted,
            f"interrupted {interrupted}",
            str(found),
        )


@cases.case(
    "StateFound.interrupted: unset when it was never set.", needs=(SET_INTERRUPTED.capability,)
)
async def flag_is_unset_at_first(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.persist(1)
    answer.ok()
    found = await owned.found()
    answer.expect(not found.HasField("interrupted"), "interrupted unset", str(found))


@cases.case("The flag may be set where no state is stored.", needs=(SET_INTERRUPTED.capability,))
async def flag_needs_no_state(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.set_interrupted(1, interrupted=True)
    answer.ok()
    (await owned.persist(1)).ok()
    answer.expect((await owned.found()).interrupted, "interrupted true once a state is stored")


@cases.case(
    "SetInterruptedRequest.revision: required, from 1.", needs=(SET_INTERRUPTED.capability,)
)
async def flag_needs_a_revision(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    answer = await owned.set_interrupted(0, interrupted=True)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("PersistStateRequest.state: required.")
async def state_is_required(session: Session) -> None:
    request = _persist(await OwnedState.claimed(session))
    request.ClearField("state")
    answer = await session.call(PERSIST_STATE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("PersistStateRequest.state: always `json`.")
async def state_of_bytes_is_refused(session: Session) -> None:
    request = _persist(await OwnedState.claimed(session))
    request.state.CopyFrom(document_pb2.Document(media_type="application/json", data=b"{}"))
    answer = await session.call(PERSIST_STATE, request)
    answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("PersistStateRequest.schema_version: required, from 1; `BadRequest` names it.")
async def schema_version_is_required(session: Session) -> None:
    request = _persist(await OwnedState.claimed(session))
    request.schema_version = 0
    await _refuses(session, request, "schema_version")


@cases.case("PersistStateRequest.revision: required, from 1; `BadRequest` names it.")
async def revision_is_required(session: Session) -> None:
    request = _persist(await OwnedState.claimed(session))
    for revision in (0, -1):
        request.revision = revision
        await _refuses(session, request, "revision")


@cases.case("StateClaim.owner_id: required, `[!-~]{1,256}`.")
async def owner_id_is_checked(session: Session) -> None:
    for owner_id in ("", "two words", "o" * 257):
        answer = await OwnedState.new(session).claim(owner_id)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case(
    "INVALID_ARGUMENT / SCOPE_REQUIRED: the scope is unset; nothing is stored under a guess."
)
async def scope_is_required(session: Session) -> None:
    owned = OwnedState.new(session)
    saving, loading = _persist(owned), pb.LoadStateRequest(context=owned.context())
    saving.context.ClearField("scope")
    loading.context.ClearField("scope")
    refusals = (
        await session.call(PERSIST_STATE, saving),
        await session.call(LOAD_STATE, loading),
    )
    for answer in refusals:
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "SCOPE_REQUIRED")


@cases.case("Scoped.tenant: required, `[!-~]{1,256}`.")
async def tenant_is_checked(session: Session) -> None:
    for tenant in ("", "two words", "t" * 257):
        request = _persist(OwnedState.new(session))
        request.context.scope.scoped.tenant = tenant
        answer = await session.call(PERSIST_STATE, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("CallContext.conversation_id: required where scope is, `[!-~]{1,256}`.")
async def conversation_id_is_checked(session: Session) -> None:
    for conversation_id in ("", "two words", "c" * 257):
        request = _persist(OwnedState.new(session))
        request.context.conversation_id = conversation_id
        answer = await session.call(PERSIST_STATE, request)
        answer.refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


@cases.case("Everything is keyed by conversation_id: conversations do not meet.")
async def conversations_do_not_meet(session: Session) -> None:
    first = await OwnedState.claimed(session)
    second = await OwnedState.claimed(session, first.scope)
    (await first.persist(1, '{"of":"first"}')).ok()
    answer = await second.persist(1, '{"of":"second"}')
    answer.ok()
    found = await first.found()
    answer.expect(found.base.json == '{"of":"first"}', "the first state unchanged", str(found))
