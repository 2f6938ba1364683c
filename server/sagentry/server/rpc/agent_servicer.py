"""The agent service: requests in, one call of the agent directory, responses out."""
# ruff: noqa: N802 - method names are the contract's

from __future__ import annotations

from typing import Any, TypeAlias

import grpc.aio

from sagentry.api.agent.v1 import agent_service_pb2 as pb
from sagentry.api.agent.v1 import agent_service_pb2_grpc as pb_grpc
from sagentry.server.ports import AgentDirectory
from sagentry.server.rpc import agent_replies as replies
from sagentry.server.rpc import agent_requests as requests
from sagentry.server.rpc.names import AGENT
from sagentry.server.rpc.not_yet import answers_not_yet

# Any: the handlers do not write to the context.
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@answers_not_yet(AGENT)
class AgentServicer(pb_grpc.AgentServiceServicer):
    """Translates; the work is done by the directory."""

    def __init__(self, directory: AgentDirectory) -> None:
        self._directory = directory

    async def StartAgent(
        self, request: pb.StartAgentRequest, _context: _Context
    ) -> pb.StartAgentResponse:
        """Starts an agent, or finds it live."""
        reply = await self._directory.start_agent(requests.start_agent(request))
        return replies.start_agent(reply)

    async def GetAgent(
        self, request: pb.GetAgentRequest, _context: _Context
    ) -> pb.GetAgentResponse:
        """Reads one agent."""
        view = await self._directory.get_agent(*requests.agent(request))
        return replies.get_agent(view)

    async def ListAgents(
        self, request: pb.ListAgentsRequest, _context: _Context
    ) -> pb.ListAgentsResponse:
        """Lists live agents."""
        page = await self._directory.list_agents(requests.list_agents(request))
        return replies.list_agents(page, request)

    async def StopAgent(
        self, request: pb.StopAgentRequest, context: _Context
    ) -> pb.StopAgentResponse:
        """Puts an agent to sleep."""
        reply = await self._directory.stop_agent(requests.stop_agent(request, context))
        return pb.StopAgentResponse(stopped=reply.stopped, unsaved=reply.unsaved)

    async def TouchAgent(
        self, request: pb.TouchAgentRequest, _context: _Context
    ) -> pb.TouchAgentResponse:
        """Keeps a live agent awake."""
        return pb.TouchAgentResponse(live=self._directory.touch_agent(*requests.agent(request)))

    async def AddMessage(
        self, request: pb.AddMessageRequest, context: _Context
    ) -> pb.AddMessageResponse:
        """Gives an agent a message."""
        reply = await self._directory.add_message(requests.add_message(request, context))
        return replies.add_message(reply)

    async def StartRun(self, request: pb.StartRunRequest, context: _Context) -> pb.StartRunResponse:
        """Begins a run without a new message."""
        reply = await self._directory.start_run(requests.start_run(request, context))
        return pb.StartRunResponse(run_id=reply.run_id, replayed=reply.replayed)

    async def GetRun(self, request: pb.GetRunRequest, _context: _Context) -> pb.GetRunResponse:
        """Reads a run."""
        reply = await self._directory.get_run(requests.get_run(request))
        return replies.get_run(reply)

    async def CancelRun(
        self, request: pb.CancelRunRequest, _context: _Context
    ) -> pb.CancelRunResponse:
        """Cancels a run."""
        reply = await self._directory.cancel_run(requests.cancel_run(request))
        return pb.CancelRunResponse(already_ended=reply.already_ended, unsaved=reply.unsaved)

    async def PauseRun(
        self, request: pb.PauseRunRequest, _context: _Context
    ) -> pb.PauseRunResponse:
        """Pauses a run."""
        reply = await self._directory.pause_run(requests.pause_run(request))
        return pb.PauseRunResponse(already_ended=reply.already_ended, replayed=reply.replayed)

    async def ResumeAgent(
        self, request: pb.ResumeAgentRequest, _context: _Context
    ) -> pb.ResumeAgentResponse:
        """Goes on with a paused run."""
        reply = await self._directory.resume_agent(requests.resume_agent(request))
        return pb.ResumeAgentResponse(
            run_id=reply.run_id, unsaved=reply.unsaved, replayed=reply.replayed
        )

    async def GetAgentState(
        self, request: pb.GetAgentStateRequest, _context: _Context
    ) -> pb.GetAgentStateResponse:
        """Reads the whole state."""
        reply = await self._directory.get_state(*requests.agent(request))
        return replies.get_state(reply)

    async def ListDisplayMessages(
        self, request: pb.ListDisplayMessagesRequest, context: _Context
    ) -> pb.ListDisplayMessagesResponse:
        """Lists rows of a conversation."""
        page = await self._directory.list_rows(requests.list_rows(request, context))
        return replies.list_rows(page, request)
