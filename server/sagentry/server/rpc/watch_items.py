"""Translates what a watcher of live agents is told."""

from __future__ import annotations

from sagentry.api.agent.v1 import event_service_pb2 as pb
from sagentry.server.domain.watching import AgentGone, AgentSummary, WatchBatch
from sagentry.server.rpc.convert import AGENT_STATUSES
from sagentry.server.rpc.event_bodies import STOP_REASONS, STREAM_END_REASONS


def watch_response(batch: WatchBatch) -> pb.WatchAgentsResponse:
    """Returns the response of a batch; an empty batch is a bookmark."""
    response = pb.WatchAgentsResponse()
    for one in batch.agents:
        if isinstance(one, AgentGone):
            gone = pb.AgentGone(agent_id=one.agent_id, reason=STOP_REASONS.to_pb(one.reason))
            response.items.add(gone=gone)
        else:
            response.items.add(agent=_summary(one))
    if batch.caught_up:
        response.items.add(caught_up=pb.CaughtUp())
    if batch.end is not None:
        end = pb.StreamEnd(reason=STREAM_END_REASONS.to_pb(batch.end), reconnect=True)
        response.items.add(end=end)
    if not response.items:
        response.items.add(bookmark=pb.Bookmark())
    return response


def _summary(one: AgentSummary) -> pb.AgentSummary:
    return pb.AgentSummary(
        agent_id=one.agent_id,
        conversation_id=one.conversation_id,
        status=AGENT_STATUSES.to_pb(one.status),
        open_items=one.open_items,
        title=one.title,
        last_change=one.last_change,
        viewers=[pb.Viewer(viewer_id=viewer) for viewer in one.viewers],
        run_id=one.run_id,
    )
