"""The client, and the client of one scope."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from sagentry.api.agent.v1 import agent_pb2, agent_service_pb2_grpc, event_service_pb2_grpc
from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.api.agent.v1 import event_service_pb2 as event_pb
from sagentry.api.type.v1 import display_pb2, message_pb2, scope_pb2
from sagentry.client._arrivals import Call
from sagentry.client._calls import Metadata, call
from sagentry.client._channel import Option, new_channel
from sagentry.client._follow import Follower, Place
from sagentry.client._stream import EventStream
from sagentry.client._view import AgentView

SHORT = timedelta(seconds=5)
MIDDLE = timedelta(seconds=10)
LONG = timedelta(seconds=30)


class Client:
    """A connection to one server. Belongs to the event loop that it is made on."""

    def __init__(self, channel: grpc.aio.Channel, *, metadata: Metadata = ()) -> None:
        """Takes over a channel; `metadata` goes with every call."""
        self._channel = channel
        self._metadata = tuple(metadata)

    @classmethod
    def connect(
        cls,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
        options: Sequence[Option] = (),
    ) -> Self:
        """Returns a client of the server at a target; it connects with the first call.

        Args:
            target: For example `unix:/run/sagentry.sock` or `dns:///agents.example.com:7433`.
            credentials: For TLS; None for plain text.
            metadata: Goes with every call, for example `(("authorization", "Bearer …"),)`.
            options: Further channel arguments of gRPC.
        """
        channel = new_channel(target, credentials=credentials, options=options)
        return cls(channel, metadata=metadata)

    def scope(
        self, tenant: str, partition: str = "", *, payload: bytes = b"", media_type: str = ""
    ) -> ScopedClient:
        """Returns the client of a tenant; `payload` is passed on to plugins."""
        scoped = scope_pb2.Scoped(
            tenant=tenant, partition=partition, payload=payload, media_type=media_type
        )
        return ScopedClient(self._channel, scope_pb2.Scope(scoped=scoped), self._metadata)

    def unscoped(self) -> ScopedClient:
        """Returns the client of the data that belongs to no tenant."""
        scope = scope_pb2.Scope(unscoped=scope_pb2.Unscoped())
        return ScopedClient(self._channel, scope, self._metadata)

    async def close(self) -> None:
        """Ends all calls and the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class ScopedClient:
    """The agents of one scope. Every method raises SagentryError.

    A call that changes something has a request_id, made here unless given: it stays the same while the
    call is repeated. Give your own to repeat a call safely after your process died.
    """

    def __init__(
        self, channel: grpc.aio.Channel, scope: scope_pb2.Scope, metadata: Metadata = ()
    ) -> None:
        """Made by `Client.scope`."""
        self._agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self._events = event_service_pb2_grpc.EventServiceStub(channel)
        self._scope = scope
        self._metadata = metadata

    async def start_agent(
        self,
        agent_id: str,
        *,
        options: pb.StartOptions | None = None,
        request_id: str = "",
        timeout: timedelta = MIDDLE,
    ) -> pb.StartAgentResponse:
        """Starts an agent, or finds it live."""
        request = pb.StartAgentRequest(
            scope=self._scope,
            agent_id=agent_id,
            request_id=request_id or new_request_id(),
            options=options,
        )
        return await call(
            self._agents.StartAgent, request, timeout=timeout, metadata=self._metadata
        )

    async def get_agent(self, agent_id: str, *, timeout: timedelta = MIDDLE) -> agent_pb2.Agent:
        """Reads an agent; a sleeping one is not woken."""
        request = pb.GetAgentRequest(scope=self._scope, agent_id=agent_id)
        response = await call(
            self._agents.GetAgent, request, timeout=timeout, metadata=self._metadata
        )
        return response.agent

    async def list_agents(
        self,
        *,
        statuses: Iterable[agent_pb2.AgentStatus.ValueType] = (),
        page_size: int = 0,
        timeout: timedelta = SHORT,
    ) -> AsyncIterator[agent_pb2.Agent]:
        """Iterates over the live agents by agent_id; `timeout` is for each page."""
        request = pb.ListAgentsRequest(
            scope=self._scope, page_size=page_size, statuses=list(statuses)
        )
        while True:
            page = await call(
                self._agents.ListAgents, request, timeout=timeout, metadata=self._metadata
            )
            for agent in page.agents:
                yield agent
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def stop_agent(
        self, agent_id: str, *, finish_run: bool = False, timeout: timedelta = LONG
    ) -> pb.StopAgentResponse:
        """Puts an agent to sleep; waits for its run if asked, and cancels it otherwise."""
        request = pb.StopAgentRequest(scope=self._scope, agent_id=agent_id, finish_run=finish_run)
        return await call(self._agents.StopAgent, request, timeout=timeout, metadata=self._metadata)

    async def touch_agent(self, agent_id: str, *, timeout: timedelta = SHORT) -> bool:
        """Keeps a live agent awake; returns whether it is live. Never wakes one."""
        request = pb.TouchAgentRequest(scope=self._scope, agent_id=agent_id)
        reply = await call(
            self._agents.TouchAgent, request, timeout=timeout, metadata=self._metadata
        )
        return reply.live

    async def add_message(
        self,
        agent_id: str,
        message: str | message_pb2.Message,
        *,
        display: message_pb2.Message | pb.DisplaySame | pb.DisplayNothing | None = None,
        options: pb.StartOptions | None = None,
        hold: bool = False,
        request_id: str = "",
        timeout: timedelta = LONG,
    ) -> pb.AddMessageResponse:
        """Gives an agent a message of a user; a sleeping one wakes up.

        Args:
            agent_id: The agent.
            message: Its text, or the whole message.
            display: What people see; None lets the preprocessor decide.
            options: Used only if nothing is stored of the agent.
            hold: Whether to accept the message without beginning a run.
            request_id: Identity of the call.
            timeout: Time for all attempts together.
        """
        request = pb.AddMessageRequest(
            scope=self._scope,
            agent_id=agent_id,
            request_id=request_id or new_request_id(),
            message=user_message(message) if isinstance(message, str) else message,
            options=options,
            hold=hold,
        )
        match display:
            case message_pb2.Message():
                request.display_message.CopyFrom(display)
            case pb.DisplaySame():
                request.display_same.SetInParent()
            case pb.DisplayNothing():
                request.display_nothing.SetInParent()
        return await call(
            self._agents.AddMessage, request, timeout=timeout, metadata=self._metadata
        )

    async def start_run(
        self,
        agent_id: str,
        *,
        options: pb.StartOptions | None = None,
        request_id: str = "",
        timeout: timedelta = MIDDLE,
    ) -> pb.StartRunResponse:
        """Begins a run without a new message."""
        request = pb.StartRunRequest(
            scope=self._scope,
            agent_id=agent_id,
            request_id=request_id or new_request_id(),
            options=options,
        )
        return await call(self._agents.StartRun, request, timeout=timeout, metadata=self._metadata)

    async def get_run(
        self,
        agent_id: str,
        run_id: str,
        *,
        wait: timedelta = timedelta(0),
        timeout: timedelta = SHORT,
    ) -> pb.GetRunResponse:
        """Reads a run; waits for its end at most `wait` (60 s), beside `timeout`."""
        request = pb.GetRunRequest(scope=self._scope, agent_id=agent_id, run_id=run_id)
        request.wait.FromTimedelta(wait)
        return await call(
            self._agents.GetRun, request, timeout=timeout + wait, metadata=self._metadata
        )

    async def pause_run(
        self,
        agent_id: str,
        run_id: str = "",
        *,
        reason: str = "",
        request_id: str = "",
        timeout: timedelta = MIDDLE,
    ) -> pb.PauseRunResponse:
        """Pauses a run after the step that it is at; without a run_id the one under way.

        Args:
            agent_id: The agent.
            run_id: Only this run.
            reason: Why, shown with the status; at most 1024 characters.
            request_id: Identity of the call.
            timeout: Time for all attempts together.
        """
        request = pb.PauseRunRequest(
            scope=self._scope,
            agent_id=agent_id,
            run_id=run_id,
            reason=reason,
            request_id=request_id or new_request_id(),
        )
        return await call(self._agents.PauseRun, request, timeout=timeout, metadata=self._metadata)

    async def resume_agent(
        self, agent_id: str, *, request_id: str = "", timeout: timedelta = LONG
    ) -> pb.ResumeAgentResponse:
        """Goes on with a paused run; a sleeping agent wakes up."""
        request = pb.ResumeAgentRequest(
            scope=self._scope, agent_id=agent_id, request_id=request_id or new_request_id()
        )
        return await call(
            self._agents.ResumeAgent, request, timeout=timeout, metadata=self._metadata
        )

    async def cancel_run(
        self, agent_id: str, run_id: str = "", *, timeout: timedelta = MIDDLE
    ) -> pb.CancelRunResponse:
        """Cancels a run and keeps what there is of it; without a run_id the one under way."""
        request = pb.CancelRunRequest(scope=self._scope, agent_id=agent_id, run_id=run_id)
        # Without a run_id a second attempt could meet a newer run.
        return await call(
            self._agents.CancelRun,
            request,
            timeout=timeout,
            metadata=self._metadata,
            may_repeat=bool(run_id),
        )

    async def get_state(
        self, agent_id: str, *, timeout: timedelta = LONG
    ) -> pb.GetAgentStateResponse:
        """Reads the whole state of an agent."""
        request = pb.GetAgentStateRequest(scope=self._scope, agent_id=agent_id)
        return await call(
            self._agents.GetAgentState, request, timeout=timeout, metadata=self._metadata
        )

    async def list_display_messages(
        self,
        conversation_id: str,
        *,
        order: pb.DisplayMessageOrder.ValueType = pb.DISPLAY_MESSAGE_ORDER_POSITION_ASCENDING,
        after: int | None = None,
        page_size: int = 0,
        timeout: timedelta = MIDDLE,
    ) -> AsyncIterator[display_pb2.DisplayMessage]:
        """Iterates over the rows of a conversation, page by page; `timeout` is for each page.

        Args:
            conversation_id: The agent_id, unless the agent was started with another one.
            order: By position (both ways) or by change.
            after: Only rows after this position or change.
            page_size: Rows of a page; 0 lets the server choose.
            timeout: Time for each page.
        """
        request = pb.ListDisplayMessagesRequest(
            scope=self._scope,
            conversation_id=conversation_id,
            order=order,
            after=after,
            page_size=page_size,
        )
        while True:
            page = await call(
                self._agents.ListDisplayMessages,
                request,
                timeout=timeout,
                metadata=self._metadata,
            )
            for row in page.display_messages:
                yield row
            if not page.next_page_token:
                return
            request.ClearField("after")
            request.page_token = page.next_page_token

    def subscribe(
        self,
        agent_id: str,
        *,
        cursor: str = "",
        kinds: Iterable[event_pb.EventKind.ValueType] = (),
        debug: bool = False,
        policy: event_pb.LagPolicy.ValueType = event_pb.LAG_POLICY_CONFLATE,
        viewer_id: str = "",
        wake: bool = False,
    ) -> EventStream:
        """Follows an agent; use the stream as a context, or close it.

        Args:
            agent_id: The agent.
            cursor: Where to go on; empty begins with a snapshot.
            kinds: Only events of these kinds; none means all but debug.
            debug: Whether debug events are wanted as well.
            policy: What happens when this reader falls behind.
            viewer_id: Who looks at the stream; empty for nobody.
            wake: Whether to wake the agent if it sleeps.
        """
        request = event_pb.SubscribeEventsRequest(
            scope=self._scope,
            agent_id=agent_id,
            from_cursor=cursor or None,
            kinds=list(kinds),
            debug=debug,
            policy=policy,
            viewer=event_pb.Viewer(viewer_id=viewer_id) if viewer_id else None,
            wake=wake,
        )
        return EventStream(self._events.SubscribeEvents(request, metadata=self._metadata))

    def follow(
        self,
        agent_id: str,
        *,
        view: AgentView | None = None,
        place: Place | None = None,
        debug: bool = False,
        viewer_id: str = "",
        wake: bool = False,
    ) -> Follower:
        """Follows an agent across cuts, restarts of the server and the agent's own sleep.

            async with scope.follow("order-17") as following:
                async for item in following: ...

        Args:
            agent_id: The agent.
            view: What a follower before knew; with its `place`.
            place: Where it stood.
            debug: Whether debug events are wanted as well.
            viewer_id: Who looks; empty for nobody.
            wake: Whether to wake the agent if it sleeps.
        """
        request = event_pb.SubscribeEventsRequest(
            scope=self._scope,
            agent_id=agent_id,
            debug=debug,
            viewer=event_pb.Viewer(viewer_id=viewer_id) if viewer_id else None,
            wake=wake,
        )
        return Follower(_FollowedServer(self, request), view=view, place=place)

    def _begin_stream(self, request: event_pb.SubscribeEventsRequest) -> Call:
        return self._events.SubscribeEvents(request, metadata=self._metadata)

    async def _rows_after(
        self, conversation_id: str, change: int
    ) -> pb.ListDisplayMessagesResponse:
        request = pb.ListDisplayMessagesRequest(
            scope=self._scope,
            conversation_id=conversation_id,
            order=pb.DISPLAY_MESSAGE_ORDER_CHANGE_ASCENDING,
            after=change,
        )
        return await call(
            self._agents.ListDisplayMessages,
            request,
            timeout=MIDDLE,
            metadata=self._metadata,
            may_repeat=False,
        )


class _FollowedServer:
    """The part of a server that one follower needs."""

    def __init__(self, client: ScopedClient, request: event_pb.SubscribeEventsRequest) -> None:
        self._client = client
        self._request = request

    def subscribe(self, cursor: str) -> Call:
        request = event_pb.SubscribeEventsRequest()
        request.CopyFrom(self._request)
        if cursor:
            request.from_cursor = cursor
        return self._client._begin_stream(request)  # noqa: SLF001

    async def rows_after(self, conversation_id: str, change: int) -> pb.ListDisplayMessagesResponse:
        return await self._client._rows_after(conversation_id, change)  # noqa: SLF001


def user_message(text: str) -> message_pb2.Message:
    """Returns a user's message of one text."""
    part = message_pb2.Part(text=message_pb2.TextPart(text=text))
    return message_pb2.Message(role=message_pb2.ROLE_USER, parts=[part])


def new_request_id() -> str:
    """Returns a new identity of a call."""
    return str(uuid.uuid4())
