"""A client gets every fact that fits, and a status that transports accept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from sagentry.server.errors import InvalidInputError, SagentryError, UnavailableError
from sagentry.server.rpc.status import MAX_DETAILS_BYTES, MAX_MESSAGE_BYTES, cut, status_of


class VerboseError(SagentryError):
    def __init__(self, text: str) -> None:
        super().__init__("MESSAGE_REJECTED", text, **{f"key{n}": text for n in range(20)})
        self.user_message = text
        self.violations = [(text, text)] * 20


def details_of(error: SagentryError, kind: type[Message]) -> list[Any]:
    found: list[Any] = []
    for packed in status_of(error).details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


def test_an_invalid_field_is_named_in_bad_request() -> None:
    error = InvalidInputError("message.parts[0].text", "is too long", limit=3, actual=4)

    [info] = details_of(error, error_details_pb2.ErrorInfo)
    [bad] = details_of(error, error_details_pb2.BadRequest)

    assert (info.reason, info.domain) == ("FIELD_INVALID", "sagentry")
    assert dict(info.metadata) == {"field": "message.parts[0].text", "limit": "3", "actual": "4"}
    assert bad.field_violations[0].field == "message.parts[0].text"
    assert bad.field_violations[0].description == "is too long"


def test_a_client_is_told_when_to_come_back() -> None:
    error = UnavailableError("SERVER_DRAINING", "x", retry_after=timedelta(milliseconds=1500))

    [retry] = details_of(error, error_details_pb2.RetryInfo)

    assert retry.retry_delay.ToTimedelta() == timedelta(milliseconds=1500)


def test_a_text_for_the_user_travels_as_localized_message() -> None:
    [text] = details_of(VerboseError("nobody is called @ada"), error_details_pb2.LocalizedMessage)

    assert text.message == "nobody is called @ada"


@pytest.mark.parametrize("text", ["x" * 9000, "ü" * 9000, "\ud800" * 9000, "%" * 9000])
def test_an_error_of_any_length_is_cut_to_what_transports_accept(text: str) -> None:
    status = status_of(VerboseError(text))

    assert len(status.message) <= MAX_MESSAGE_BYTES
    assert sum(detail.ByteSize() for detail in status.details) <= MAX_DETAILS_BYTES


@given(st.text(st.characters(codec=None)), st.integers(min_value=16, max_value=64))
def test_a_cut_text_never_passes_its_limit_and_begins_like_the_whole(text: str, limit: int) -> None:
    result = cut(text, limit)

    sent = sum(1 if 32 <= byte < 127 and byte != ord("%") else 3 for byte in result.encode("utf-8"))
    assert sent <= limit
    assert text.encode("utf-8", "replace").decode().startswith(result.removesuffix("…"))
