"""Replies of the domain as responses of the agent service."""

from __future__ import annotations

from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.server.domain.commands import (
    AddMessageReply,
    AgentPage,
    RunReply,
    StartAgentReply,
    StateReply,
)
from sagentry.server.domain.display import DisplayPage, ListOrder
from sagentry.server.domain.events import AgentView
from sagentry.server.rpc.agent_requests import agents_list_name, rows_list_name
from sagentry.server.rpc.convert import agent_to_pb, row_order_from_pb, run_to_pb
from sagentry.server.rpc.page_tokens import encode_page_token
from sagentry.server.wire.display import row_to_pb
from sagentry.server.wire.document import json_document
from sagentry.server.wire.message import message_to_pb

MAX_PAGE_BYTES = 1024 * 1024
"""A page ends here, or after its first entry."""


def start_agent(reply: StartAgentReply) -> pb.StartAgentResponse:
    """Answers StartAgent."""
    return pb.StartAgentResponse(
        agent=agent_to_pb(reply.agent),
        started=reply.started,
        options_applied=reply.options_applied,
        replayed=reply.replayed,
    )


def get_agent(view: AgentView) -> pb.GetAgentResponse:
    """Answers GetAgent."""
    return pb.GetAgentResponse(agent=agent_to_pb(view))


def list_agents(page: AgentPage, request: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
    """Answers ListAgents; a page that would be too large is cut."""
    response = pb.ListAgentsResponse()
    size = 0
    has_more = page.has_more
    for view in page.agents:
        agent = agent_to_pb(view)
        size += agent.ByteSize()
        if response.agents and size > MAX_PAGE_BYTES:
            has_more = True
            break
        response.agents.append(agent)
    if has_more and response.agents:
        place = (response.agents[-1].agent_id,)
        response.next_page_token = encode_page_token(agents_list_name(request), place)
    return response


def add_message(reply: AddMessageReply) -> pb.AddMessageResponse:
    """Answers AddMessage."""
    return pb.AddMessageResponse(
        message_id=reply.message_id,
        run_id=reply.run_id,
        queued=reply.queued,
        display_messages=[row_to_pb(row) for row in reply.rows],
        unsaved=reply.unsaved,
        replayed=reply.replayed,
    )


def get_run(reply: RunReply) -> pb.GetRunResponse:
    """Answers GetRun."""
    final = reply.final_message
    return pb.GetRunResponse(
        run=run_to_pb(reply.run, reply.phase),
        final_message=None if final is None else message_to_pb(final),
    )


def get_state(reply: StateReply) -> pb.GetAgentStateResponse:
    """Answers GetAgentState."""
    return pb.GetAgentStateResponse(
        state=json_document(reply.state_json),
        schema_version=reply.schema_version,
        revision=reply.revision,
    )


def list_rows(
    page: DisplayPage, request: pb.ListDisplayMessagesRequest
) -> pb.ListDisplayMessagesResponse:
    """Answers ListDisplayMessages; a page that would be too large is cut."""
    response = pb.ListDisplayMessagesResponse()
    size = 0
    has_more, last = page.has_more, 0
    by_change = row_order_from_pb(request.order) is ListOrder.CHANGE_ASCENDING
    for row in page.rows:
        size += len(row.encoded)
        if response.display_messages and size > MAX_PAGE_BYTES:
            has_more = True
            break
        response.display_messages.append(row_to_pb(row))
        last = row.change if by_change else row.position
    if has_more and response.display_messages:
        response.next_page_token = encode_page_token(rows_list_name(request), (str(last),))
    return response
