"""Follows an agent with nothing but the generated stubs, until it sleeps; prints its transcript then.

    python follow.py TARGET TENANT AGENT

The rules are those of docs/following.md; this is what they are in code, in any language.
"""

import json
import sys
import time

import grpc

from sagentry.api.agent.v1 import agent_pb2 as agent
from sagentry.api.agent.v1 import agent_service_pb2 as agents
from sagentry.api.agent.v1 import agent_service_pb2_grpc as agents_grpc
from sagentry.api.agent.v1 import event_service_pb2 as events
from sagentry.api.agent.v1 import event_service_pb2_grpc as events_grpc
from sagentry.api.type.v1 import scope_pb2

# How a cut shows itself, by the moment at which it happens.
CUT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)

rows = {}  # the transcript: display_message_id → row
growing = {}  # messages that are being written: (message_id, part_index) → bytes
place = {"cursor": None, "sequence": None, "change": 0}


def upsert(row):
    known = rows.get(row.display_message_id)
    if known is None or known.change < row.change:
        rows[row.display_message_id] = row


def read_rows(stub, scope, conversation_id):
    """Rows that the stream does not tell: at the beginning, and behind each snapshot."""
    while True:
        request = agents.ListDisplayMessagesRequest(
            scope=scope,
            conversation_id=conversation_id,
            order=agents.DISPLAY_MESSAGE_ORDER_CHANGE_ASCENDING,
            after=place["change"],
        )
        page = stub.ListDisplayMessages(request, wait_for_ready=True, timeout=30)
        for row in page.display_messages:
            upsert(row)
            place["change"] = max(place["change"], row.change)
        if not page.next_page_token:
            return


def take_event(event):
    if place["sequence"] is not None and event.sequence <= place["sequence"]:
        return  # had before the stream was cut
    place["sequence"] = event.sequence
    kind = event.WhichOneof("kind")
    if kind in ("display_message_saved", "display_message_updated"):
        upsert(getattr(event, kind).display_message)
    elif kind == "message_completed":
        for key in [key for key in growing if key[0] == event.message_completed.message.message_id]:
            del growing[key]


def take_delta(delta):
    key = (delta.message_id, delta.part_index)
    kind = delta.WhichOneof("kind")
    if kind in ("text", "arguments"):
        piece = getattr(delta, kind)
        had = growing.setdefault(key, b"")
        if piece.offset == len(had):  # shorter offsets are pieces that we have
            growing[key] = had + piece.text.encode()


def follow(agent_stub, event_stub, scope, agent_id):
    """One stream. Returns whether to go on with another."""
    request = events.SubscribeEventsRequest(scope=scope, agent_id=agent_id)
    if place["cursor"]:
        request.from_cursor = place["cursor"]
    for response in event_stub.SubscribeEvents(request):
        for item in response.items:
            kind = item.WhichOneof("item")
            if kind == "snapshot":
                place["sequence"] = None  # its events are numbered anew
                if item.snapshot.reset:
                    growing.clear()
                for message in item.snapshot.growing_messages:
                    for index, part in enumerate(message.parts):
                        text = part.text.text or part.thinking.text or part.tool_call.arguments_json
                        growing[message.message_id, index] = text.encode()
                if item.snapshot.last_piece:
                    read_rows(agent_stub, scope, agent_id)
                if item.snapshot.agent.status == agent.AGENT_STATUS_ASLEEP:
                    return False
            elif kind == "event":
                take_event(item.event)
                if item.event.WhichOneof("kind") == "agent_stopped":
                    return False
            elif kind == "delta":
                take_delta(item.delta)
            elif kind == "end":
                return item.end.reconnect
        # Only now: the cursor names the whole response.
        place["cursor"], place["sequence"] = response.cursor, response.last_sequence
    return True  # closed without an end: cut


def main():
    target, tenant, agent_id = sys.argv[1:]
    scope = scope_pb2.Scope(scoped=scope_pb2.Scoped(tenant=tenant))
    with grpc.insecure_channel(target) as channel:
        agent_stub = agents_grpc.AgentServiceStub(channel)
        event_stub = events_grpc.EventServiceStub(channel)
        goes_on = True
        while goes_on:
            try:
                goes_on = follow(agent_stub, event_stub, scope, agent_id)
            except grpc.RpcError as error:
                if error.code() not in CUT:
                    raise
                time.sleep(0.1)
        read_rows(agent_stub, scope, agent_id)
    for row in sorted(rows.values(), key=lambda row: row.position):
        body = getattr(row.content, row.content.WhichOneof("body"))
        print(json.dumps([row.position, row.change, getattr(body, "text", "")]))


if __name__ == "__main__":
    main()
