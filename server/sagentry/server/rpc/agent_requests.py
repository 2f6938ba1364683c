"""Requests of the agent service as commands of the domain. All raise InvalidInputError."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import grpc.aio

from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.api.type.v1 import scope_pb2
from sagentry.server.domain.commands import (
    AddMessage,
    AgentOptions,
    CancelRun,
    GetRun,
    ListAgents,
    ListRows,
    PauseRun,
    ResumeAgent,
    StartAgent,
    StartRun,
    StopAgent,
)
from sagentry.server.domain.scope import Scope
from sagentry.server.errors import InvalidInputError, NotFoundError
from sagentry.server.rpc.convert import (
    AGENT_STATUSES,
    display_choice_from_pb,
    options_from_pb,
    row_order_from_pb,
    user_message_from_pb,
    wait_from_pb,
)
from sagentry.server.rpc.page_tokens import decode_page_token, page_size_of
from sagentry.server.wire.fields import optional_id, require_id
from sagentry.server.wire.scope import scope_from_pb

MOST_REASON = 1024
"""Characters of the reason of a pause."""

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class _NamesAgent(Protocol):
    @property
    def scope(self) -> scope_pb2.Scope: ...
    @property
    def agent_id(self) -> str: ...


def agent(request: _NamesAgent) -> tuple[Scope, str]:
    """Returns which agent a request is for."""
    return scope_from_pb(request.scope), require_id(request.agent_id, "agent_id")


def start_agent(request: pb.StartAgentRequest) -> StartAgent:
    """Returns the command of a StartAgent."""
    scope, agent_id = agent(request)
    request_id = optional_id(request.request_id, "request_id")
    return StartAgent(scope, agent_id, request_id, _options(request))


def list_agents(request: pb.ListAgentsRequest) -> ListAgents:
    """Returns the command of a ListAgents."""
    after = ""
    if request.page_token:
        (after,) = decode_page_token(request.page_token, agents_list_name(request), parts=1)
    return ListAgents(
        scope=scope_from_pb(request.scope),
        page_size=page_size_of(request.page_size),
        after=after,
        statuses=tuple(
            AGENT_STATUSES.require(status, f"statuses[{index}]")
            for index, status in enumerate(request.statuses)
        ),
    )


def agents_list_name(request: pb.ListAgentsRequest) -> str:
    """Returns what a page token of the list is good for."""
    return "agents/" + ",".join(str(status) for status in sorted(set(request.statuses)))


def stop_agent(request: pb.StopAgentRequest, context: _Context) -> StopAgent:
    """Returns the command of a StopAgent."""
    scope, agent_id = agent(request)
    return StopAgent(scope, agent_id, request.finish_run, time_left(context))


def add_message(request: pb.AddMessageRequest, context: _Context) -> AddMessage:
    """Returns the command of an AddMessage."""
    scope, agent_id = agent(request)
    return AddMessage(
        scope=scope,
        agent_id=agent_id,
        request_id=require_id(request.request_id, "request_id"),
        message=user_message_from_pb(request),
        display=display_choice_from_pb(request),
        options=_options(request),
        hold=request.hold,
        timeout=time_left(context),
    )


def start_run(request: pb.StartRunRequest, context: _Context) -> StartRun:
    """Returns the command of a StartRun."""
    scope, agent_id = agent(request)
    # Ignoring what ends a run would let it go on where its caller counts on an end.
    for name in ("until_tools", "until_success", "max_turns"):
        if any(descriptor.name == name for descriptor, _value in request.ListFields()):
            raise InvalidInputError(name, "is not available in this version of the server")
    return StartRun(
        scope=scope,
        agent_id=agent_id,
        request_id=require_id(request.request_id, "request_id"),
        options=_options(request),
        timeout=time_left(context),
    )


def get_run(request: pb.GetRunRequest) -> GetRun:
    """Returns the command of a GetRun."""
    scope, agent_id = agent(request)
    run_id = require_id(request.run_id, "run_id")
    return GetRun(scope, agent_id, run_id, wait_from_pb(request.wait))


def cancel_run(request: pb.CancelRunRequest) -> CancelRun:
    """Returns the command of a CancelRun."""
    scope, agent_id = agent(request)
    optional_id(request.request_id, "request_id")
    return CancelRun(scope, agent_id, optional_id(request.run_id, "run_id"))


def pause_run(request: pb.PauseRunRequest) -> PauseRun:
    """Returns the command of a PauseRun."""
    scope, agent_id = agent(request)
    if len(request.reason) > MOST_REASON:
        raise InvalidInputError(
            "reason", f"must be at most {MOST_REASON} characters", actual=len(request.reason)
        )
    return PauseRun(
        scope,
        agent_id,
        require_id(request.request_id, "request_id"),
        optional_id(request.run_id, "run_id"),
        request.reason,
    )


def resume_agent(request: pb.ResumeAgentRequest) -> ResumeAgent:
    """Returns the command of a ResumeAgent.

    Raises:
        NotFoundError: ITEM_NOT_FOUND: this version of the server opens no items.
    """
    scope, agent_id = agent(request)
    request_id = require_id(request.request_id, "request_id")
    for index, answer in enumerate(request.answers):
        item_id = require_id(answer.item_id, f"answers[{index}].item_id")
        raise NotFoundError(
            "ITEM_NOT_FOUND", f"the agent has no item {item_id}", agent_id=agent_id, item_id=item_id
        )
    return ResumeAgent(scope, agent_id, request_id)


def list_rows(request: pb.ListDisplayMessagesRequest, context: _Context) -> ListRows:
    """Returns the command of a ListDisplayMessages."""
    scope = scope_from_pb(request.scope)
    conversation_id = require_id(request.conversation_id, "conversation_id")
    order = row_order_from_pb(request.order)
    after = request.after if request.HasField("after") else None
    if after is not None and after < 0:
        raise InvalidInputError("after", "must be 0 or more", actual=after)
    if request.page_token:
        if after is not None:
            raise InvalidInputError("page_token", "must not be set together with after")
        (place,) = decode_page_token(request.page_token, rows_list_name(request), parts=1)
        after = _place(place)
    size = page_size_of(request.page_size)
    return ListRows(scope, conversation_id, order, after, size, time_left(context))


def rows_list_name(request: pb.ListDisplayMessagesRequest) -> str:
    """Returns what a page token of the list is good for."""
    return f"rows/{request.conversation_id}/{row_order_from_pb(request.order).value}"


def _place(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(2**63))):
        raise InvalidInputError("page_token", "is malformed", reason="PAGE_TOKEN_INVALID")
    return int(text)


def time_left(context: _Context) -> timedelta | None:
    """Returns how long the caller waits; None for as long as it takes."""
    seconds: float | None = context.time_remaining()  # None in fact, whatever its stub says
    return None if seconds is None else timedelta(seconds=max(0.0, seconds))


def _options(
    request: pb.StartAgentRequest | pb.AddMessageRequest | pb.StartRunRequest,
) -> AgentOptions | None:
    return options_from_pb(request.options) if request.HasField("options") else None
