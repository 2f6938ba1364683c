"""What operators see of plugins, as messages of the contract."""

from __future__ import annotations

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.server.domain.plugins import (
    ContractBinding,
    PluginFailure,
    PluginIdentity,
    PluginState,
    PluginView,
)

_STATES = {
    PluginState.CONNECTING: pb.PLUGIN_STATE_CONNECTING,
    PluginState.ATTACHED: pb.PLUGIN_STATE_ATTACHED,
    PluginState.REFUSED: pb.PLUGIN_STATE_REFUSED,
    PluginState.DEGRADED: pb.PLUGIN_STATE_DEGRADED,
}


def plugin_to_pb(view: PluginView) -> pb.Plugin:
    """Converts a view of a plugin."""
    message = pb.Plugin(
        name=view.name,
        target=view.target,
        state=_STATES[view.state],
        identity=None if view.identity is None else _identity_to_pb(view.identity),
        contracts=[_contract_to_pb(contract) for contract in view.contracts],
        problem=view.problem,
        problem_reason=view.problem_reason,
        process_starts=view.process_starts,
    )
    message.state_change_time.FromDatetime(view.state_change_time)
    if view.next_attempt_time is not None:
        message.next_attempt_time.FromDatetime(view.next_attempt_time)
    return message


def plugin_failure_to_pb(failure: PluginFailure) -> pb.PluginFailure:
    """Converts a failure."""
    message = pb.PluginFailure(
        plugin=failure.plugin,
        method=failure.method,
        reason=failure.reason,
        code=failure.code,
        message=failure.message,
        consequence=failure.consequence,
        request_id=failure.request_id,
        command=failure.command,
    )
    message.time.FromDatetime(failure.time)
    message.elapsed.FromTimedelta(failure.elapsed)
    message.budget.FromTimedelta(failure.budget)
    return message


def _identity_to_pb(identity: PluginIdentity) -> pb.PluginIdentity:
    return pb.PluginIdentity(
        name=identity.name,
        version=identity.version,
        instance_id=identity.instance_id,
        max_request_bytes=identity.max_request_bytes,
        max_response_bytes=identity.max_response_bytes,
        max_concurrent_calls=identity.max_concurrent_calls,
    )


def _contract_to_pb(contract: ContractBinding) -> pb.PluginContract:
    return pb.PluginContract(
        service=contract.service, bound=contract.bound, capabilities=contract.capabilities
    )
