"""Message preprocessing: the port `Preprocessor` over `MessagePreprocessorService`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.api.type.v1 import message_pb2
from sagentry.server.domain.messages import Document, Message, Role
from sagentry.server.plugin.binding import Binding, ContractViolation
from sagentry.server.plugin.v1.context import (
    REQUEST_OVERHEAD_BYTES,
    context_to_pb,
    converting,
    outcome_unset,
)
from sagentry.server.ports import Accepted, PluginCall, Rejected
from sagentry.server.wire.document import document_to_pb, json_document
from sagentry.server.wire.message import message_from_pb, message_to_pb

MAX_USER_MESSAGE_LENGTH = 1024
MAX_VIOLATIONS = 16

_REASON_PATTERN = re.compile(r"[A-Z][A-Z0-9_]{0,62}")


class MessagePreprocessor:
    """Asks a plugin about each message before it is accepted."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.plugin = binding.plugin

    async def preprocess(
        self,
        call: PluginCall,
        message: Message,
        *,
        tool_context: Document | None,
        messages: Sequence[Message],
    ) -> Accepted | Rejected:
        """Decides what becomes of a message."""
        request = pb.PreprocessMessageRequest(
            context=context_to_pb(call),
            message=message_to_pb(message),
            tool_context=None if tool_context is None else document_to_pb(tool_context),
        )
        self._add_view(request, messages)

        def read(response: pb.PreprocessMessageResponse) -> Accepted | Rejected:
            match response.WhichOneof("outcome"):
                case "accepted":
                    return _accepted(response.accepted, message)
                case "rejected":
                    return _rejected(response.rejected)
                case _:
                    raise outcome_unset()

        return await self._binding.invoke(
            "PreprocessMessage",
            request,
            pb.PreprocessMessageResponse,
            read,
            timeout=call.timeout,
        )

    def _add_view(self, request: pb.PreprocessMessageRequest, messages: Sequence[Message]) -> None:
        declared = self._binding.declared.message_preprocessor
        capabilities = set(declared.capabilities)
        if pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_ALL in capabilities:
            most = len(messages)
        elif pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_LAST_MESSAGES in capabilities:
            most = declared.last_messages
        elif pb.MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_METADATA in capabilities:
            most = 0
        else:
            return
        request.state_view.metadata.CopyFrom(json_document("{}"))
        request.state_view.message_count = len(messages)
        room = self._binding.identity.max_request_bytes - REQUEST_OVERHEAD_BYTES
        newest = messages[max(0, len(messages) - most) :]
        request.state_view.messages.extend(_fitting(newest, room - request.ByteSize()))


def _fitting(messages: Sequence[Message], room: int) -> list[message_pb2.Message]:
    """Returns the newest messages that fit: a conversation may outgrow what a plugin takes."""
    fitting: list[message_pb2.Message] = []
    for message in reversed(messages):
        converted = message_to_pb(message)
        room -= converted.ByteSize() + 8
        if room < 0:
            break
        fitting.append(converted)
    fitting.reverse()
    return fitting


def _accepted(accepted: pb.MessageAccepted, sent: Message) -> Accepted:
    display: Message | None
    match accepted.WhichOneof("display"):
        case "display_message":
            display = _changed(accepted.display_message, sent, "accepted.display_message")
        case "display_none":
            display = None
        case _:
            display = sent
    llm = sent
    if accepted.HasField("llm_message"):
        llm = _changed(accepted.llm_message, sent, "accepted.llm_message")
        if llm.role is not Role.USER:
            raise ContractViolation("accepted.llm_message.role is not user")
    return Accepted(display=display, llm=llm)


def _changed(message: message_pb2.Message, sent: Message, what: str) -> Message:
    # Whatever a plugin writes there is not a reason to refuse the rest.
    for name in ("message_id", "create_time", "run_id"):
        message.ClearField(name)
    with converting():
        changed = message_from_pb(message, field=what)
    return replace(
        changed,
        message_id=sent.message_id,
        create_time=sent.create_time,
        run_id=sent.run_id,
    )


def _rejected(rejected: pb.MessageRejected) -> Rejected:
    if _REASON_PATTERN.fullmatch(rejected.reason) is None:
        raise ContractViolation("rejected.reason is not a word in capitals")
    if not 1 <= len(rejected.user_message) <= MAX_USER_MESSAGE_LENGTH:
        raise ContractViolation("rejected.user_message has not 1 to 1024 characters")
    if len(rejected.violations) > MAX_VIOLATIONS:
        raise ContractViolation("rejected.violations has more than 16 entries")
    violations = tuple((one.field, one.description) for one in rejected.violations)
    return Rejected(rejected.reason, rejected.user_message, violations)
