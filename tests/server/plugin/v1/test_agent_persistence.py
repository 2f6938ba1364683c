from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
from sagentry.api.plugin.v1 import agent_persistence_pb2_grpc as pb_grpc
from sagentry.api.plugin.v1 import call_context_pb2
from sagentry.api.type.v1 import document_pb2, scope_pb2
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import PluginError
from sagentry.server.plugin.v1.agent_persistence import AgentPersistence
from sagentry.server.ports import StateStoreCapabilities, StoredState
from tests.support.binding import CALL, bound

pytestmark = pytest.mark.anyio

SERVICE = "sagentry.api.plugin.v1.AgentPersistenceService"
CONTEXT = call_context_pb2.CallContext(
    scope=scope_pb2.Scope(
        scoped=scope_pb2.Scoped(
            tenant="acme", partition="u-1", media_type="text/plain", payload=b"token"
        )
    ),
    conversation_id="c-1",
    agent_id="a-1",
    request_id="q-1",
    owner_epoch=7,
    run_id="r-1",
)


class Store(pb_grpc.AgentPersistenceServiceServicer):
    """Answers whatever it is asked with the one answer that it was given."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    async def _say(self, _request: Any, _context: Any) -> Any:
        return self.answer

    LoadState = PersistState = AppendState = SetInterrupted = DeleteState = _say  # type: ignore[assignment]


@asynccontextmanager
async def store_that_says(answer: Any, *capabilities: str) -> Any:
    async with bound(
        pb_grpc.add_AgentPersistenceServiceServicer_to_server, Store(answer), SERVICE
    ) as binding:
        binding.declared.agent_persistence.capabilities.extend(
            pb.AgentPersistenceCapability.Value(f"AGENT_PERSISTENCE_CAPABILITY_{name}")
            for name in capabilities
        )
        yield AgentPersistence(binding), binding


def json(text: str) -> document_pb2.Document:
    return document_pb2.Document(media_type="application/json", json=text)


def found(**fields: Any) -> pb.LoadStateResponse:
    facts = {
        "base": json('{"a": 1}'),
        "schema_version": 1,
        "base_revision": 4,
        "patches": [
            pb.StatePatch(revision=5, patch=json("[5]")),
            pb.StatePatch(revision=9, patch=json("[9]")),
        ],
        "owner_epoch": 7,
        "previous_owner": "s-1",
        "released": True,
        "interrupted": False,
        "tenant": "acme",
        "partition": "u-1",
        "conversation_id": "c-1",
    }
    return pb.LoadStateResponse(found=pb.StateFound(**{**facts, **fields}))


async def test_a_stored_state_is_claimed_and_read():
    async with store_that_says(found(), "ADVERTISED", "FENCING") as (store, binding):
        state = await store.load(CALL, claim_as="s-2")

    assert binding.requests == [
        pb.LoadStateRequest(context=CONTEXT, claim=pb.StateClaim(owner_id="s-2"))
    ]
    assert state == StoredState(
        '{"a": 1}', 1, 4, ((5, "[5]"), (9, "[9]")), 7, "s-1", released=True, interrupted=False
    )


async def test_reading_alone_claims_nothing():
    async with store_that_says(found(), "FENCING") as (store, binding):
        await store.load(CALL, claim_as=None)

    assert not binding.requests[0].HasField("claim")


async def test_a_flag_that_was_never_set_is_not_false():
    answer = found()
    answer.found.ClearField("interrupted")
    async with store_that_says(answer, "FENCING") as (store, _binding):
        assert (await store.load(CALL, claim_as="s")).interrupted is None


async def test_an_absent_state_is_an_answer():
    answer = pb.LoadStateResponse(absent=pb.StateAbsent(owner_epoch=1, previous_owner="s-1"))
    async with store_that_says(answer, "FENCING") as (store, _binding):
        state = await store.load(CALL, claim_as="s")

    assert state == StoredState(None, owner_epoch=1, previous_owner="s-1")


async def test_data_of_no_tenant_is_asked_for_and_compared_as_such():
    call = replace(CALL, scope=Scope(ScopeKey(ScopeKind.UNSCOPED)))
    async with store_that_says(found(tenant="", partition=""), "FENCING") as (store, binding):
        await store.load(call, claim_as="s")

    assert binding.requests[0].context.scope == scope_pb2.Scope(unscoped=scope_pb2.Unscoped())


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        (pb.LoadStateResponse(), "outcome is unset"),
        (found(tenant="other"), "found.tenant"),
        (found(partition=""), "found.partition"),
        (found(conversation_id="c-2"), "found.conversation_id"),
        (found(base=document_pb2.Document(media_type="x", data=b"")), "found.base is not json"),
        (found(schema_version=0), "found.schema_version"),
        (found(base_revision=5), r"found.patches\[0\].revision"),
        (
            found(patches=[pb.StatePatch(revision=5, patch=document_pb2.Document())]),
            r"found.patches\[0\].patch is not json",
        ),
        (found(owner_epoch=0), "owner_epoch of a claim"),
        (pb.LoadStateResponse(absent=pb.StateAbsent()), "owner_epoch of a claim"),
    ],
)
async def test_an_answer_that_breaks_the_contract_is_a_fault_of_the_plugin(answer, violation):
    async with store_that_says(answer, "FENCING") as (store, _binding):
        with pytest.raises(PluginError, match=violation) as caught:
            await store.load(CALL, claim_as="s")

    assert (caught.value.reason, caught.value.plugin) == ("PLUGIN_FAULT", "store")


async def test_without_fencing_there_is_no_epoch():
    async with store_that_says(found(), "ADVERTISED") as (store, _binding):
        with pytest.raises(PluginError, match="without the capability FENCING"):
            await store.load(CALL, claim_as="s")


async def persist(store: AgentPersistence) -> None:
    await store.persist(
        CALL,
        lifecycle=Lifecycle.CHECKPOINT,
        state_json='{"n": 12345678901234567890}',
        schema_version=1,
        revision=5,
        release=True,
    )


async def test_a_state_is_saved_as_it_is():
    answer = pb.PersistStateResponse(saved=pb.StateSaved(revision=5))
    async with store_that_says(answer) as (store, binding):
        await persist(store)

    assert binding.requests == [
        pb.PersistStateRequest(
            context=CONTEXT,
            lifecycle=pb.LIFECYCLE_CHECKPOINT,
            state=json('{"n": 12345678901234567890}'),
            schema_version=1,
            revision=5,
            release=True,
        )
    ]


@pytest.mark.parametrize(
    "answer", [pb.PersistStateResponse(), pb.PersistStateResponse(saved=pb.StateSaved(revision=4))]
)
async def test_a_state_that_was_not_saved_is_a_fault(answer):
    async with store_that_says(answer) as (store, _binding):
        with pytest.raises(PluginError) as caught:
            await persist(store)

    assert caught.value.reason == "PLUGIN_FAULT"


@pytest.mark.parametrize(
    ("answer", "appended"),
    [
        (pb.AppendStateResponse(saved=pb.StateSaved(revision=5)), True),
        (pb.AppendStateResponse(needs_full=pb.FullStateNeeded(current_revision=2)), False),
    ],
)
async def test_a_patch_is_added_or_a_full_state_is_wanted(answer, appended):
    async with store_that_says(answer) as (store, binding):
        result = await store.append(CALL, expected_revision=4, revision=5, patch_json="[]")

    assert result is appended
    assert binding.requests == [
        pb.AppendStateRequest(context=CONTEXT, expected_revision=4, revision=5, patch=json("[]"))
    ]


async def test_a_patch_without_outcome_is_a_fault():
    async with store_that_says(pb.AppendStateResponse()) as (store, _binding):
        with pytest.raises(PluginError, match="outcome is unset"):
            await store.append(CALL, expected_revision=4, revision=5, patch_json="[]")


async def test_the_flag_is_set():
    answer = pb.SetInterruptedResponse(applied=pb.InterruptedApplied())
    async with store_that_says(answer) as (store, binding):
        await store.set_interrupted(CALL, interrupted=True, revision=5)

    assert binding.requests == [
        pb.SetInterruptedRequest(context=CONTEXT, interrupted=True, revision=5)
    ]


async def test_a_flag_without_outcome_is_a_fault():
    async with store_that_says(pb.SetInterruptedResponse()) as (store, _binding):
        with pytest.raises(PluginError, match="outcome is unset"):
            await store.set_interrupted(CALL, interrupted=True, revision=5)


async def test_what_a_plugin_declared_is_known():
    async with store_that_says(None, "ADVERTISED", "APPEND_STATE", "CHECKPOINT") as (store, _):
        assert store.capabilities == StateStoreCapabilities(append_state=True, checkpoint=True)


async def test_the_largest_state_fits_into_a_request_and_into_an_answer():
    async with store_that_says(None) as (store, binding):
        binding.identity = replace(
            binding.identity, max_request_bytes=5_000_000, max_response_bytes=1_000_000
        )

        assert 900_000 < store.max_state_bytes < 1_000_000
