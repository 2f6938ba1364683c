"""Agent persistence: the port `StateStore` over `AgentPersistenceService`."""

from __future__ import annotations

from sagentry.api.plugin.v1 import agent_persistence_pb2 as pb
from sagentry.api.type.v1 import document_pb2
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.plugin.binding import Binding, ContractViolation
from sagentry.server.plugin.v1.context import (
    REQUEST_OVERHEAD_BYTES,
    check_identity,
    context_to_pb,
    outcome_unset,
)
from sagentry.server.ports import PluginCall, StateStoreCapabilities, StoredState
from sagentry.server.wire.document import json_document
from sagentry.server.wire.fields import EnumTable

LIFECYCLES = EnumTable(Lifecycle, pb.Lifecycle, "LIFECYCLE_")


class AgentPersistence:
    """Keeps agent state in a plugin."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.plugin = binding.plugin

    @property
    def capabilities(self) -> StateStoreCapabilities:
        """What the attached plugin declared."""
        declared = set(self._binding.declared.agent_persistence.capabilities)
        return StateStoreCapabilities(
            fencing=pb.AGENT_PERSISTENCE_CAPABILITY_FENCING in declared,
            append_state=pb.AGENT_PERSISTENCE_CAPABILITY_APPEND_STATE in declared,
            set_interrupted=pb.AGENT_PERSISTENCE_CAPABILITY_SET_INTERRUPTED in declared,
            delete_state=pb.AGENT_PERSISTENCE_CAPABILITY_DELETE_STATE in declared,
            checkpoint=pb.AGENT_PERSISTENCE_CAPABILITY_CHECKPOINT in declared,
        )

    @property
    def max_state_bytes(self) -> int:
        """Largest state that fits into a request to the plugin and into its answer."""
        identity = self._binding.identity
        smaller = min(identity.max_request_bytes, identity.max_response_bytes)
        return max(0, smaller - REQUEST_OVERHEAD_BYTES)

    async def load(self, call: PluginCall, *, claim_as: str | None) -> StoredState:
        """Loads the state; claims the conversation for an owner unless that is None."""
        request = pb.LoadStateRequest(context=context_to_pb(call))
        if claim_as is not None:
            request.claim.owner_id = claim_as
        is_fenced = self.capabilities.fencing

        def read(response: pb.LoadStateResponse) -> StoredState:
            return _stored_state(
                response, call, is_fenced=is_fenced, is_claimed=claim_as is not None
            )

        return await self._binding.invoke(
            "LoadState", request, pb.LoadStateResponse, read, timeout=call.timeout
        )

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
        request = pb.PersistStateRequest(
            context=context_to_pb(call),
            lifecycle=LIFECYCLES.to_pb(lifecycle),
            state=json_document(state_json),
            schema_version=schema_version,
            revision=revision,
            release=release,
        )

        def read(response: pb.PersistStateResponse) -> None:
            if response.WhichOneof("outcome") != "saved":
                raise outcome_unset()
            _check_saved(response.saved, revision)

        await self._binding.invoke(
            "PersistState", request, pb.PersistStateResponse, read, timeout=call.timeout
        )

    async def append(
        self, call: PluginCall, *, expected_revision: int, revision: int, patch_json: str
    ) -> bool:
        """Adds a patch; False when the store wants a full state instead."""
        request = pb.AppendStateRequest(
            context=context_to_pb(call),
            expected_revision=expected_revision,
            revision=revision,
            patch=json_document(patch_json),
        )

        def read(response: pb.AppendStateResponse) -> bool:
            match response.WhichOneof("outcome"):
                case "saved":
                    _check_saved(response.saved, revision)
                    return True
                case "needs_full":
                    return False
                case _:
                    raise outcome_unset()

        return await self._binding.invoke(
            "AppendState", request, pb.AppendStateResponse, read, timeout=call.timeout
        )

    async def set_interrupted(self, call: PluginCall, *, interrupted: bool, revision: int) -> None:
        """Sets the flag that says whether the conversation waits for people."""
        request = pb.SetInterruptedRequest(
            context=context_to_pb(call), interrupted=interrupted, revision=revision
        )

        def read(response: pb.SetInterruptedResponse) -> None:
            if response.WhichOneof("outcome") != "applied":
                raise outcome_unset()

        await self._binding.invoke(
            "SetInterrupted", request, pb.SetInterruptedResponse, read, timeout=call.timeout
        )


def _check_saved(saved: pb.StateSaved, revision: int) -> None:
    if saved.revision < revision:
        message = f"saved.revision is {saved.revision} and {revision} was written"
        raise ContractViolation(message)


def _stored_state(
    response: pb.LoadStateResponse, call: PluginCall, *, is_fenced: bool, is_claimed: bool
) -> StoredState:
    match response.WhichOneof("outcome"):
        case "found":
            state = _found(response.found, call)
        case "absent":
            state = StoredState(
                base_json=None,
                owner_epoch=response.absent.owner_epoch,
                previous_owner=response.absent.previous_owner,
            )
        case _:
            raise outcome_unset()
    if is_fenced and is_claimed and state.owner_epoch < 1:
        raise ContractViolation("owner_epoch of a claim must be 1 or more")
    if not is_fenced and state.owner_epoch != 0:
        raise ContractViolation("owner_epoch must be 0 without the capability FENCING")
    return state


def _found(found: pb.StateFound, call: PluginCall) -> StoredState:
    check_identity(found, call, "found")
    if found.schema_version < 1:
        raise ContractViolation("found.schema_version must be 1 or more")
    patches: list[tuple[int, str]] = []
    last = found.base_revision
    for index, patch in enumerate(found.patches):
        if patch.revision <= last:
            message = f"found.patches[{index}].revision is not above the one before it"
            raise ContractViolation(message)
        last = patch.revision
        patches.append((last, _json_of(patch.patch, f"found.patches[{index}].patch")))
    return StoredState(
        base_json=_json_of(found.base, "found.base"),
        schema_version=found.schema_version,
        base_revision=found.base_revision,
        patches=tuple(patches),
        owner_epoch=found.owner_epoch,
        previous_owner=found.previous_owner,
        released=found.released,
        interrupted=found.interrupted if found.HasField("interrupted") else None,
    )


def _json_of(document: document_pb2.Document, what: str) -> str:
    if document.WhichOneof("body") != "json":
        message = f"{what} is not json"
        raise ContractViolation(message)
    return document.json
