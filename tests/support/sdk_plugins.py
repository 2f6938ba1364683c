"""Plugins on the SDK, of both kinds, that do what the text of the message says."""
# ruff: noqa: N802  methods are named as in the contract

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.plugins.sdk import Call, MessagePreprocessor, OverloadedError

TEXT = "what only the log may show"


def request(
    text: str, *, tenant: str = "acme", request_id: str = "r-1"
) -> pb.PreprocessMessageRequest:
    """Returns a request whose message has that text."""
    made = pb.PreprocessMessageRequest()
    made.context.request_id = request_id
    made.context.conversation_id = "c-1"
    made.context.scope.scoped.tenant = tenant
    made.message.parts.add().text.text = text
    return made


class Threaded(MessagePreprocessor):
    """Synchronous. `wait` blocks until `may_go_on`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def PreprocessMessage(
        self, request: pb.PreprocessMessageRequest, call: Call
    ) -> pb.PreprocessMessageResponse:
        self.calls.append(call)
        if text_of(request) == "wait":
            self.has_begun.set()
            self.may_go_on.wait()
        return answer(request)


class Looped(MessagePreprocessor):
    """Asynchronous. `wait` waits until `may_go_on`; `cancel` is cancelled from inside."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def PreprocessMessage(
        self, request: pb.PreprocessMessageRequest, call: Call
    ) -> pb.PreprocessMessageResponse:
        self.calls.append(call)
        if text_of(request) == "wait":
            self.has_begun.set()
            await self.may_go_on.wait()
        if text_of(request) == "cancel":
            raise asyncio.CancelledError
        return answer(request)


def text_of(request: pb.PreprocessMessageRequest) -> str:
    """Returns the text of the message."""
    return request.message.parts[0].text.text


def answer(request: pb.PreprocessMessageRequest) -> pb.PreprocessMessageResponse:
    """Does what the text says."""
    response = pb.PreprocessMessageResponse(request_id="forged")
    match text_of(request):
        case "raise":
            raise RuntimeError(TEXT)
        case "overloaded":
            raise OverloadedError("busy", retry_after=timedelta(seconds=2))
        case "nothing":
            return None  # type: ignore[return-value]  # what a careless author does
        case "no outcome":
            return response
    response.accepted.SetInParent()
    return response
