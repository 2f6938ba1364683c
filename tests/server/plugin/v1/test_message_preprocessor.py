# ruff: noqa: N802 - method names are the contract's
from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as pb_grpc
from sagentry.api.type.v1 import message_pb2
from sagentry.server.domain.messages import Document, Message, Role, TextPart
from sagentry.server.errors import PluginError
from sagentry.server.plugin.v1.message_preprocessor import MessagePreprocessor
from sagentry.server.ports import Accepted, Rejected
from tests.support.binding import CALL, bound
from tests.support.events import TIME, message

pytestmark = pytest.mark.anyio

SERVICE = "sagentry.api.plugin.v1.MessagePreprocessorService"
SENT = Message("m-1", Role.USER, (TextPart("hi"),), TIME)


class Plugin(pb_grpc.MessagePreprocessorServiceServicer):
    """Says the one thing that it was told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def PreprocessMessage(self, _request: Any, _context: Any) -> Any:
        return self.answer


@asynccontextmanager
async def plugin_that_says(answer: Any, *capabilities: str, last_messages: int = 0) -> Any:
    async with bound(
        pb_grpc.add_MessagePreprocessorServiceServicer_to_server, Plugin(answer), SERVICE
    ) as binding:
        declared = binding.declared.message_preprocessor
        declared.last_messages = last_messages
        declared.capabilities.extend(
            pb.MessagePreprocessorCapability.Value(f"MESSAGE_PREPROCESSOR_CAPABILITY_{name}")
            for name in capabilities
        )
        yield MessagePreprocessor(binding), binding


async def ask(answer: Any, *capabilities: str, history: int = 0, **more: Any) -> Any:
    messages = [message(f"text {number}", f"h-{number}") for number in range(history)]
    tool_context = Document("application/json", json='{"a":1}')
    async with plugin_that_says(answer, *capabilities, **more) as (preprocessor, binding):
        result = await preprocessor.preprocess(
            CALL, SENT, tool_context=tool_context, messages=messages
        )
    return result, binding.requests[0]


def accepted(**fields: Any) -> pb.PreprocessMessageResponse:
    return pb.PreprocessMessageResponse(accepted=pb.MessageAccepted(**fields))


def other(**fields: Any) -> message_pb2.Message:
    facts = {
        "role": message_pb2.ROLE_USER,
        "parts": [message_pb2.Part(text=message_pb2.TextPart(text="changed"))],
        "message_id": "not an id, and nobody minds",
        "run_id": "r-9",
    }
    return message_pb2.Message(**{**facts, **fields})


CHANGED = replace(SENT, parts=(TextPart("changed"),))


async def test_a_message_goes_on_unchanged():
    result, request = await ask(accepted())

    assert result == Accepted(display=SENT, llm=SENT)
    assert request.message.parts[0].text.text == "hi"
    assert request.tool_context.json == '{"a":1}'
    assert request.context.request_id == "q-1"
    assert not request.HasField("state_view")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"display_message": other()}, Accepted(display=CHANGED, llm=SENT)),
        ({"llm_message": other()}, Accepted(display=SENT, llm=CHANGED)),
        ({"display_none": pb.DisplayNone()}, Accepted(display=None, llm=SENT)),
    ],
)
async def test_what_people_see_and_what_the_model_reads_change_apart(fields, expected):
    result, _request = await ask(accepted(**fields))

    assert result == expected


async def test_a_message_is_rejected_with_the_places_at_fault():
    violation = pb.MessageViolation(field="parts[0].text", description="mentions @bob")
    rejected = pb.MessageRejected(
        reason="UNKNOWN_MENTION", user_message="Who is @bob?", violations=[violation]
    )

    result, _request = await ask(pb.PreprocessMessageResponse(rejected=rejected))

    assert result == Rejected(
        "UNKNOWN_MENTION", "Who is @bob?", (("parts[0].text", "mentions @bob"),)
    )


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        (pb.PreprocessMessageResponse(), "outcome is unset"),
        (accepted(llm_message=other(role=message_pb2.ROLE_SYSTEM)), "llm_message.role"),
        (accepted(llm_message=message_pb2.Message()), "accepted.llm_message.role"),
        (
            accepted(display_message=other(parts=[message_pb2.Part()])),
            r"accepted.display_message.parts\[0\]",
        ),
        (
            accepted(
                llm_message=other(
                    parts=[message_pb2.Part(text=message_pb2.TextPart(text="x" * 1_048_577))]
                )
            ),
            "1048577 bytes of text",
        ),
        (
            pb.PreprocessMessageResponse(rejected=pb.MessageRejected(user_message="x")),
            "rejected.reason",
        ),
        (
            pb.PreprocessMessageResponse(rejected=pb.MessageRejected(reason="R")),
            "rejected.user_message",
        ),
        (
            pb.PreprocessMessageResponse(
                rejected=pb.MessageRejected(
                    reason="R", user_message="x", violations=[pb.MessageViolation()] * 17
                )
            ),
            "rejected.violations",
        ),
    ],
)
async def test_an_answer_that_breaks_the_contract_is_a_fault_and_no_rejection(answer, violation):
    with pytest.raises(PluginError, match=violation) as caught:
        await ask(answer)

    assert caught.value.reason == "PLUGIN_FAULT"


@pytest.mark.parametrize(
    ("capability", "last_messages", "shown"),
    [
        ("STATE_VIEW_METADATA", 0, []),
        ("STATE_VIEW_LAST_MESSAGES", 2, ["h-3", "h-4"]),
        ("STATE_VIEW_LAST_MESSAGES", 9, ["h-0", "h-1", "h-2", "h-3", "h-4"]),
        ("STATE_VIEW_ALL", 0, ["h-0", "h-1", "h-2", "h-3", "h-4"]),
    ],
)
async def test_a_plugin_sees_of_the_state_what_it_asked_for(capability, last_messages, shown):
    _result, request = await ask(accepted(), capability, history=5, last_messages=last_messages)

    assert [one.message_id for one in request.state_view.messages] == shown
    assert request.state_view.message_count == 5
    assert request.state_view.metadata.json == "{}"


async def test_a_long_conversation_is_shown_as_far_as_it_fits():
    messages = [message("x" * 30_000, f"h-{number}") for number in range(9)]
    async with plugin_that_says(accepted(), "STATE_VIEW_ALL") as (preprocessor, binding):
        binding.identity = replace(binding.identity, max_request_bytes=100_000)
        await preprocessor.preprocess(CALL, SENT, tool_context=None, messages=messages)

    [request] = binding.requests
    assert request.ByteSize() < 100_000
    assert [one.message_id for one in request.state_view.messages] == ["h-7", "h-8"]
    assert request.state_view.message_count == 9
