"""AgentPersistenceService, levels 2 and 3: repetition, fencing, isolation, concurrency."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import asyncio

import grpc

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
from sagentry.api.type.v1 import scope_pb2
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.cases.agent_persistence import FENCING
from sagentry.plugins.check.methods import (
    AGENT_PERSISTENCE,
    APPEND_STATE,
    LOAD_STATE,
    SET_INTERRUPTED,
)
from sagentry.plugins.check.owned import OwnedState, epoch_of
from sagentry.plugins.check.session import Session

cases = Cases("agent_persistence", contract=AGENT_PERSISTENCE, level=Level.FAULTS)

_CONCURRENT = 16


@cases.case("A write with the stored revision and the same epoch answers `saved`.")
async def repeated_state_is_saved(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    for _ in range(3):
        answer = await owned.persist(2, '{"v":2}', request_id="the-same")
        answer.expect(answer.ok().saved.revision == 2, "saved, revision 2")  # noqa: PLR2004  as sent


@cases.case("A write with the stored revision and the same epoch changes nothing.")
async def repeated_revision_changes_nothing(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(2, '{"v":"first"}')).ok()
    answer = await owned.persist(2, '{"v":"second"}')
    answer.ok()
    found = await owned.found()
    answer.expect(found.base.json == '{"v":"first"}', "the first state", str(found))


@cases.case("ABORTED / REVISION_CONFLICT: `revision` is below the stored one.")
async def lower_revision_is_refused(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(5, '{"v":5}')).ok()
    answer = await owned.persist(4, '{"v":4}')
    answer.refused(grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    found = await owned.found()
    answer.expect(found.base.json == '{"v":5}', "the state of revision 5", str(found))


@cases.case("REVISION_CONFLICT: metadata has `current_revision`.")
async def conflict_names_the_revision(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(5)).ok()
    answer = await owned.persist(4)
    got = answer.error.metadata.get("current_revision")
    answer.expect(got == "5", "metadata current_revision 5", f"current_revision {got!r}")


@cases.case(
    "A claim repeated with the same request_id answers the same epoch again.", needs=(FENCING,)
)
async def repeated_claim_has_one_epoch(session: Session) -> None:
    owned = OwnedState.new(session)
    request_id = session.name("request")
    first = epoch_of((await owned.claim(request_id=request_id)).ok())
    for _ in range(2):
        answer = await owned.claim(request_id=request_id)
        answer.expect(epoch_of(answer.ok()) == first, f"owner_epoch {first} again")


@cases.case(
    "A claim repeated with the same request_id tells again what was before it.", needs=(FENCING,)
)
async def repeated_claim_has_one_answer(session: Session) -> None:
    owned = await OwnedState.new(session).claimed_again("server-a")
    (await owned.persist(1, release=True)).ok()
    request_id = session.name("request")
    for _ in range(2):
        answer = await owned.claim("server-b", request_id)
        found = answer.ok().found
        answer.expect(
            found.previous_owner == "server-a" and found.released,
            "previous_owner server-a, released true",
        )


@cases.case(
    "AppendState: a patch whose revision is stored already is answered `saved`.",
    needs=(APPEND_STATE.capability,),
)
async def repeated_patch_is_saved_once(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    for _ in range(3):
        answer = await owned.append(2, '["once"]')
        answer.expect(answer.ok().WhichOneof("outcome") == "saved", "the outcome saved")
    found = await owned.found()
    answer.expect([each.revision for each in found.patches] == [2], "one patch", str(found))


@cases.case(
    "AppendState: ABORTED / REVISION_CONFLICT: `revision` is below the stored one.",
    needs=(APPEND_STATE.capability,),
)
async def lower_patch_is_refused(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(9)).ok()
    answer = await owned.append(5)
    answer.refused(grpc.StatusCode.ABORTED, "REVISION_CONFLICT")


@cases.case(
    "SetInterrupted: a lower (owner_epoch, revision) answers `applied`, changes nothing.",
    needs=(SET_INTERRUPTED.capability,),
)
async def lower_flag_changes_nothing(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    (await owned.set_interrupted(5, interrupted=True)).ok()
    answer = await owned.set_interrupted(4, interrupted=False)
    answer.expect(answer.ok().WhichOneof("outcome") == "applied", "the outcome applied")
    answer.expect((await owned.found()).interrupted, "interrupted still true")


@cases.case(
    "SetInterrupted is ordered by (owner_epoch, revision): a higher epoch begins anew.",
    needs=(SET_INTERRUPTED.capability,),
)
async def flag_of_a_later_epoch_counts(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    (await owned.persist(1)).ok()
    (await owned.set_interrupted(9, interrupted=True)).ok()
    later = await owned.claimed_again()
    answer = await later.set_interrupted(9 if later.epoch > owned.epoch else 10, interrupted=False)
    answer.ok()
    answer.expect(not (await owned.found()).interrupted, "interrupted false")


@cases.case(
    "FAILED_PRECONDITION / STALE_EPOCH: `owner_epoch` is below the stored one.",
    needs=(FENCING,),
    level=Level.CONCURRENCY,
)
async def stale_state_is_refused(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    (await zombie.persist(1, '{"of":"zombie"}')).ok()
    owner = await zombie.claimed_again("new-owner")
    answer = await zombie.persist(2, '{"of":"zombie"}')
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    (await owner.persist(2, '{"of":"owner"}')).ok()
    answer = await zombie.persist(3, '{"of":"zombie"}')
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    found = await owner.found()
    answer.expect(found.base.json == '{"of":"owner"}', "the owner's state", str(found))


@cases.case("STALE_EPOCH: metadata has `current_epoch`.", needs=(FENCING,), level=Level.CONCURRENCY)
async def stale_epoch_names_the_current(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    owner = await zombie.claimed_again("new-owner")
    answer = await zombie.persist(1)
    got = answer.error.metadata.get("current_epoch")
    answer.expect(got == str(owner.epoch), f"metadata current_epoch {owner.epoch}", repr(got))


@cases.case(
    "A write is checked in this order: epoch, then revision.",
    needs=(FENCING,),
    level=Level.CONCURRENCY,
)
async def epoch_is_checked_first(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    owner = await zombie.claimed_again("new-owner")
    (await owner.persist(9)).ok()
    answer = await zombie.persist(1)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "A repeated write of an earlier owner is refused: the epoch is checked first.",
    needs=(FENCING,),
    level=Level.CONCURRENCY,
)
async def repeated_stale_state_is_refused(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    (await zombie.persist(1, request_id="the-same")).ok()
    (await zombie.claim("new-owner")).ok()
    answer = await zombie.persist(1, request_id="the-same")
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "AppendState: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(APPEND_STATE.capability, FENCING),
    level=Level.CONCURRENCY,
)
async def stale_patch_is_refused(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    (await zombie.persist(1)).ok()
    owner = await zombie.claimed_again("new-owner")
    answer = await zombie.append(2)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    found = await owner.found()
    answer.expect(not found.patches, "no patch of the earlier owner", str(found))


@cases.case(
    "SetInterrupted: FAILED_PRECONDITION / STALE_EPOCH below the stored epoch.",
    needs=(SET_INTERRUPTED.capability, FENCING),
    level=Level.CONCURRENCY,
)
async def stale_flag_is_refused(session: Session) -> None:
    zombie = await OwnedState.claimed(session)
    await zombie.claimed_again("new-owner")
    answer = await zombie.set_interrupted(9, interrupted=True)
    answer.refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")


@cases.case(
    "A claim raises the epoch in one transaction: two never get the same.",
    needs=(FENCING,),
    level=Level.CONCURRENCY,
)
async def concurrent_claims_have_their_own_epochs(session: Session) -> None:
    owned = OwnedState.new(session)
    answers = await asyncio.gather(*(owned.claim(f"server-{n}") for n in range(_CONCURRENT)))
    epochs = sorted(epoch_of(answer.ok()) for answer in answers)
    answers[0].expect(
        len(set(epochs)) == _CONCURRENT, f"{_CONCURRENT} different epochs", f"epochs {epochs}"
    )


@cases.case(
    "The highest revision stays, however writes of one epoch arrive.", level=Level.CONCURRENCY
)
async def concurrent_writes_keep_the_highest(session: Session) -> None:
    owned = await OwnedState.claimed(session)
    revisions = range(1, _CONCURRENT + 1)
    answers = await asyncio.gather(*(owned.persist(n, f'{{"v":{n}}}') for n in revisions))
    for answer in answers:
        if answer.code is not grpc.StatusCode.OK:
            answer.refused(grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    found = await owned.found()
    answers[-1].expect(found.base.json == f'{{"v":{_CONCURRENT}}}', "the highest", str(found))


async def _is_hidden(owner: OwnedState, *others: scope_pb2.Scope) -> None:
    """Each other scope sees nothing of the owner's conversation and cannot change it."""
    (await owner.persist(1, '{"of":"owner"}')).ok()
    for scope in others:
        answer = await owner.of(scope).load()
        answer.expect(answer.ok().WhichOneof("outcome") == "absent", "the outcome absent")
        other = await owner.of(scope).claimed_again("other")
        saved = await other.persist(1, '{"of":"other"}')
        saved.expect(saved.ok().WhichOneof("outcome") == "saved", "the outcome saved")
        found = await owner.found()
        saved.expect(
            found.base.json == '{"of":"owner"}' and found.owner_epoch == owner.epoch,
            "the owner's state and epoch unchanged",
            str(found),
        )


@cases.case(
    "Keys are (tenant, partition, conversation_id): tenants do not meet.", level=Level.CONCURRENCY
)
async def tenants_do_not_meet(session: Session) -> None:
    await _is_hidden(await OwnedState.claimed(session), session.scope())


@cases.case(
    "Keys are (tenant, partition, conversation_id): partitions do not meet.",
    level=Level.CONCURRENCY,
)
async def partitions_do_not_meet(session: Session) -> None:
    scope = session.scope(partition="user-1")
    tenant = scope.scoped.tenant
    await _is_hidden(
        await OwnedState.claimed(session, scope),
        session.scope(tenant, "user-2"),
        session.scope(tenant, "USER-1"),
    )


@cases.case(
    "Scoped.partition: empty is a partition like any other, not a wildcard.",
    level=Level.CONCURRENCY,
)
async def empty_partition_is_no_wildcard(session: Session) -> None:
    scope = session.scope(partition="user-1")
    await _is_hidden(await OwnedState.claimed(session, scope), session.scope(scope.scoped.tenant))


@cases.case(
    "Nothing that a tenant owns can be seen through the unscoped namespace.",
    level=Level.CONCURRENCY,
)
async def unscoped_sees_no_tenant(session: Session) -> None:
    unscoped = scope_pb2.Scope(unscoped=scope_pb2.Unscoped())
    await _is_hidden(await OwnedState.claimed(session), unscoped)


@cases.case(
    "Unscoped data belongs to no tenant: no tenant's name means it.", level=Level.CONCURRENCY
)
async def no_tenant_means_unscoped(session: Session) -> None:
    unscoped = scope_pb2.Scope(unscoped=scope_pb2.Unscoped())
    owner = await OwnedState.claimed(session, unscoped)
    names = ("unscoped", "Unscoped", "null", "None", "-", "*", "''")
    await _is_hidden(owner, *(session.scope(name) for name in names))


@cases.case(
    "The identity of a scope is a pair, compared as text: joined forms do not collide.",
    level=Level.CONCURRENCY,
)
async def joined_identities_do_not_collide(session: Session) -> None:
    tenant = session.name("tenant")
    for joint in "/:|,.-_#":
        first = session.scope(f"{tenant}{joint}a", "b")
        second = session.scope(tenant, f"a{joint}b")
        await _is_hidden(await OwnedState.claimed(session, first), second)


@cases.case("Scoped.payload: never part of a key.", level=Level.CONCURRENCY)
async def payload_is_not_in_the_key(session: Session) -> None:
    owner = await OwnedState.claimed(session)
    (await owner.persist(1)).ok()
    scope = session.scope(owner.scope.scoped.tenant)
    scope.scoped.media_type, scope.scoped.payload = "text/plain", b"another"
    answer = await owner.of(scope).load()
    answer.expect(answer.ok().WhichOneof("outcome") == "found", "the same state, found")


@cases.case("CallContext.agent_id: information, not part of any key.", level=Level.CONCURRENCY)
async def agent_id_is_not_in_the_key(session: Session) -> None:
    owner = await OwnedState.claimed(session)
    (await owner.persist(1)).ok()
    request = pb.LoadStateRequest(context=owner.context(reads=True))
    request.context.agent_id = session.name("agent")
    answer = await session.call(LOAD_STATE, request)
    answer.expect(answer.ok().WhichOneof("outcome") == "found", "the same state, found")
