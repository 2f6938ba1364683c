"""The two contracts over a store."""
# ruff: noqa: N802  names of methods are those of the contract

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial

import grpc
from sqlalchemy import Connection

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.plugins.sdk import (
    AgentPersistence,
    Call,
    DisplayMessagePersistence,
    PluginError,
    call_of,
    group_error_of,
)
from sagentry.plugins.sql import arguments, display, state
from sagentry.plugins.sql.display import Transcript
from sagentry.plugins.sql.store import AnswerSize, R, Store
from sagentry.plugins.sql.writer import Work

logger = logging.getLogger(__name__)

AGENT_CAPABILITIES = agent_pb.AgentPersistenceCapabilities(
    capabilities=[
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_FENCING,
        agent_pb.AGENT_PERSISTENCE_CAPABILITY_CHECKPOINT,
    ]
)
"""What the methods of SqlAgentPersistence do not show."""


class SqlAgentPersistence(AgentPersistence):
    """Keeps agent state in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def PersistState(
        self, request: agent_pb.PersistStateRequest, call: Call
    ) -> agent_pb.PersistStateResponse:
        """Saves a whole state."""
        arguments.check_persist_state(request)
        run = partial(state.persist, call=call, request=request)
        return await self._store.write(call, request, run)

    async def LoadState(
        self, request: agent_pb.LoadStateRequest, call: Call
    ) -> agent_pb.LoadStateResponse:
        """Loads the state; only a claim goes through the writer."""
        arguments.check_load_state(request)
        if not request.HasField("claim"):
            return await self._store.read(call, partial(state.load, call=call))
        run = partial(state.claim, call=call, owner_id=request.claim.owner_id)
        return await self._store.write(call, request, run, is_read=True)

    async def AppendState(
        self, request: agent_pb.AppendStateRequest, call: Call
    ) -> agent_pb.AppendStateResponse:
        """Adds a patch."""
        arguments.check_append_state(request)
        run = partial(state.append, call=call, request=request)
        return await self._store.write(call, request, run)

    async def SetInterrupted(
        self, request: agent_pb.SetInterruptedRequest, call: Call
    ) -> agent_pb.SetInterruptedResponse:
        """Sets the flag."""
        arguments.check_set_interrupted(request)
        run = partial(state.set_interrupted, call=call, request=request)
        return await self._store.write(call, request, run)


class SqlDisplayMessagePersistence(DisplayMessagePersistence):
    """Keeps display messages in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def OpenConversation(
        self, request: display_pb.OpenConversationRequest, call: Call
    ) -> display_pb.OpenConversationResponse:
        """Stores the epoch and returns the counters."""
        return await self._store.write(call, request, _written(call, Transcript.open))

    async def SaveMessage(
        self, request: display_pb.SaveMessageRequest, call: Call
    ) -> display_pb.SaveMessageResponse:
        """Saves a message as rows."""
        arguments.check_save_message(request)
        run = _written(call, lambda transcript: transcript.save_message(request))
        return await self._store.write(call, request, run)

    async def UpdateToolStatus(
        self, request: display_pb.UpdateToolStatusRequest, call: Call
    ) -> display_pb.UpdateToolStatusResponse:
        """Moves a tool call's row to another status."""
        arguments.check_update_tool_status(request)
        run = _written(call, lambda transcript: transcript.update_tool_status(request))
        return await self._store.write(call, request, run)

    async def ResolveToolResult(
        self, request: display_pb.ResolveToolResultRequest, call: Call
    ) -> display_pb.ResolveToolResultResponse:
        """Replaces the content of a result row."""
        arguments.check_resolve_tool_result(request)
        run = _written(call, lambda transcript: transcript.resolve_tool_result(request))
        return await self._store.write(call, request, run)

    async def SaveSyntheticMessage(
        self, request: display_pb.SaveSyntheticMessageRequest, call: Call
    ) -> display_pb.SaveSyntheticMessageResponse:
        """Saves a row that no message stands behind."""
        arguments.check_save_synthetic_message(request)
        run = _written(call, lambda transcript: transcript.save_synthetic_message(request))
        return await self._store.write(call, request, run)

    async def ListDisplayMessages(
        self, request: display_pb.ListDisplayMessagesRequest, call: Call
    ) -> display_pb.ListDisplayMessagesResponse:
        """Returns a page of rows."""
        arguments.check_list_display_messages(request)
        run = partial(display.list_rows, call=call, request=request)
        return await self._store.read(call, run)

    async def ApplyWrites(
        self, request: display_pb.ApplyWritesRequest, call: Call
    ) -> display_pb.ApplyWritesResponse:
        """Applies groups; each is a work of its own, so that one cannot spoil another."""
        arguments.check_apply_writes(request)
        answer = AnswerSize()
        refused: dict[int, display_pb.WriteGroupResult] = {}
        works: dict[int, Work[display_pb.WriteOutcomes]] = {}
        for index, group in enumerate(request.groups):
            try:
                works[index] = _group_work(group, f"groups[{index}].context", call, answer)
            except PluginError as error:
                refused[index] = _failed(error)
        done = await self._store.write_all(list(works.values()))
        results = refused | {index: _result(each) for index, each in zip(works, done, strict=True)}
        applied = display_pb.WritesApplied()
        for index, group in enumerate(request.groups):
            results[index].request_id = group.context.request_id
            applied.results.append(results[index])
        return display_pb.ApplyWritesResponse(applied=applied)


def _written(call: Call, write: Callable[[Transcript], R]) -> Callable[[Connection], R]:
    def run(connection: Connection) -> R:
        transcript = Transcript(connection, call)
        response = write(transcript)
        transcript.finish()
        return response

    return run


def _group_work(
    group: display_pb.WriteGroup, path: str, call: Call, answer: AnswerSize
) -> Work[display_pb.WriteOutcomes]:
    context = call_of(group.context, path=path)
    arguments.check_writes(group)
    run = _written(context, lambda transcript: answer.checked(_outcomes(transcript, group)))
    return Work(run=run, size=group.ByteSize(), expires=call.expires)


def _outcomes(transcript: Transcript, group: display_pb.WriteGroup) -> display_pb.WriteOutcomes:
    outcomes = display_pb.WriteOutcomes()
    for write in group.writes:
        outcome = outcomes.outcomes.add()
        match write.WhichOneof("write"):
            case "save_message":
                outcome.save_message.CopyFrom(transcript.save_message(write.save_message))
            case "update_tool_status":
                outcome.update_tool_status.CopyFrom(
                    transcript.update_tool_status(write.update_tool_status)
                )
            case "resolve_tool_result":
                outcome.resolve_tool_result.CopyFrom(
                    transcript.resolve_tool_result(write.resolve_tool_result)
                )
            case "save_synthetic_message":
                outcome.save_synthetic_message.CopyFrom(
                    transcript.save_synthetic_message(write.save_synthetic_message)
                )
    return outcomes


def _result(done: display_pb.WriteOutcomes | BaseException) -> display_pb.WriteGroupResult:
    if isinstance(done, display_pb.WriteOutcomes):
        return display_pb.WriteGroupResult(outcomes=done)
    if isinstance(done, PluginError):
        return _failed(done)
    if not isinstance(done, Exception):
        raise done
    error_id = uuid.uuid4().hex
    logger.error("a group of writes failed, error id %s", error_id, exc_info=done)
    internal = PluginError(
        grpc.StatusCode.INTERNAL,
        "INTERNAL",
        f"internal error, id {error_id}",
        facts={"error_id": error_id},
    )
    return _failed(internal)


def _failed(error: PluginError) -> display_pb.WriteGroupResult:
    return display_pb.WriteGroupResult(error=group_error_of(error))
