from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from sagentry.api.type.v1 import document_pb2
from sagentry.api.type.v1 import message_pb2 as pb
from sagentry.server.domain.messages import (
    MediaPart,
    MessageStatus,
    TextPart,
    ToolCall,
    ToolCallStatus,
)
from sagentry.server.errors import InvalidInputError, LimitExceededError
from sagentry.server.wire.message import (
    MAX_ENCODED_BYTES,
    MAX_TEXT_BYTES,
    message_from_pb,
    message_to_pb,
    part_from_pb,
)
from tests.support import strategies

MIB = 1024 * 1024
# Any: numbers that the contract does not have yet.
NEWER: Any = 99


def text_part(text: str = "hi") -> pb.Part:
    return pb.Part(text=pb.TextPart(text=text))


def user(*parts: pb.Part, **fields) -> pb.Message:
    return pb.Message(role=pb.ROLE_USER, parts=parts or (text_part(),), **fields)


@given(strategies.messages)
def test_a_message_survives_the_wire(message):
    encoded = message_to_pb(message).SerializeToString()

    assert message_from_pb(pb.Message.FromString(encoded)) == message


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "שלום", "e\u0301\u0327", "a\0b", "x" * MIB])
def test_text_survives_character_by_character(text):
    encoded = user(text_part(text)).SerializeToString()

    assert message_from_pb(pb.Message.FromString(encoded)).parts == (TextPart(text),)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Message(parts=[text_part()]), "message.role"),
        (pb.Message(role=NEWER, parts=[text_part()]), "message.role"),
        (pb.Message(role=pb.ROLE_USER), "message.parts"),
        (user(pb.Part()), "message.parts[0]"),
        (user(text_part(), pb.Part(tool_call=pb.ToolCall(name="n"))),
         "message.parts[1].tool_call.call_id"),
        (user(pb.Part(tool_call=pb.ToolCall(call_id="c", name="a b"))),
         "message.parts[0].tool_call.name"),
        (user(pb.Part(image=pb.MediaPart(url="u"))), "message.parts[0].image.media_type"),
        (user(pb.Part(file=pb.MediaPart(media_type="a/b"))), "message.parts[0].file"),
        (user(pb.Part(audio=pb.MediaPart(media_type="a/b", url="u" * 8193))),
         "message.parts[0].audio.url"),
        (user(pb.Part(opaque=document_pb2.Document(media_type="a/b"))),
         "message.parts[0].opaque"),
        (user(pb.Part(tool_result=pb.ToolResult(call_id="c", parts=[
            pb.Part(tool_call=pb.ToolCall(call_id="c", name="n"))]))),
         "message.parts[0].tool_result.parts[0]"),
        (user(metadata=document_pb2.Document(media_type="application/json", json="[1]")),
         "message.metadata.json"),
        (user(message_id="not an id"), "message.message_id"),
        (user(run_id="é"), "message.run_id"),
    ],
)  # fmt: skip
def test_a_malformed_field_is_named_by_its_path(message, field):
    with pytest.raises(InvalidInputError) as caught:
        message_from_pb(message)

    assert caught.value.field == field


def test_a_time_that_is_none_is_refused():
    message = user()
    message.create_time.seconds = 2**60

    with pytest.raises(InvalidInputError) as caught:
        message_from_pb(message)

    assert caught.value.field == "message.create_time"


def test_a_part_of_a_newer_kind_is_refused_and_not_dropped():
    newer = b"\xfa\x01\x02hi"  # field 31, which nobody has defined

    with pytest.raises(InvalidInputError):
        part_from_pb(pb.Part.FromString(newer), field="part")


def test_one_byte_of_text_too_many_is_refused():
    with pytest.raises(LimitExceededError) as caught:
        message_from_pb(user(text_part("x" * MIB), text_part("y")))

    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert caught.value.metadata == {
        "limit": str(MAX_TEXT_BYTES), "actual": str(MAX_TEXT_BYTES + 1), "field": "message",
    }  # fmt: skip


def test_text_is_counted_inside_of_results_and_in_bytes():
    inner = pb.ToolResult(call_id="c", parts=[text_part("é" * (MIB // 2)), text_part("x")])

    with pytest.raises(LimitExceededError):
        message_from_pb(user(pb.Part(tool_result=inner)))


def test_media_count_as_encoded_bytes_only():
    data = pb.Part(image=pb.MediaPart(media_type="a/b", data=b"x" * (MIB + MIB // 2)))

    [part] = message_from_pb(user(data)).parts

    assert isinstance(part, MediaPart)


def test_a_message_over_its_encoded_limit_is_refused():
    data = pb.Part(image=pb.MediaPart(media_type="a/b", data=b"x" * (2 * MIB)))

    with pytest.raises(LimitExceededError) as caught:
        message_from_pb(user(data))

    assert caught.value.metadata["limit"] == str(MAX_ENCODED_BYTES)


@pytest.mark.parametrize(
    ("number", "status"), [(0, MessageStatus.COMPLETE), (77, MessageStatus.STREAM_ERROR)]
)
def test_a_status_that_is_unset_or_newer_has_a_meaning(number, status):
    assert message_from_pb(user(status=number)).status is status


@pytest.mark.parametrize("number", [0, 77])
def test_a_call_whose_status_is_unset_or_newer_is_incomplete(number):
    part = pb.Part(tool_call=pb.ToolCall(call_id="c", name="n", status=number))

    call = part_from_pb(part, field="part")

    assert isinstance(call, ToolCall)
    assert call.status is ToolCallStatus.INCOMPLETE


def test_a_count_of_zero_is_not_a_count_that_is_missing():
    usage = message_from_pb(user(usage=pb.TokenUsage(input_tokens=0))).usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (0, None)


def test_times_are_read_in_utc():
    message = user()
    message.create_time.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC))

    assert message_from_pb(message).create_time == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
