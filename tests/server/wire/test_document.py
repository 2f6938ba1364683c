from __future__ import annotations

import pytest
from hypothesis import given

from sagentry.api.type.v1 import document_pb2 as pb
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.document import (
    document_from_pb,
    document_to_pb,
    is_json_object,
    json_object_from_pb,
)
from tests.support import strategies


@given(strategies.documents)
def test_a_document_survives_the_wire(document):
    encoded = document_to_pb(document).SerializeToString()

    assert document_from_pb(pb.Document.FromString(encoded), field="d") == document


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' { "a" : [1.50, null] } ',
        '{"n": 123456789012345678901234567890}',
        '{"n": ' + "9" * 5000 + "}",
        '{"s": "\\ud83d\\u0000"}',
        '{"a":' * 100 + "1" + "}" * 100,
    ],
)
def test_an_object_is_kept_character_by_character(text):
    message = pb.Document(media_type="application/json", json=text)

    assert json_object_from_pb(message, field="d").json == text


@pytest.mark.parametrize(
    "text", ["", "1", "[]", "null", '{"a": NaN}', '{"a": Infinity}', "{'a': 1}", "{" * 100_000]
)
def test_anything_else_is_no_object(text):
    assert not is_json_object(text)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Document(json="{}"), "d.media_type"),
        (pb.Document(media_type="m" * 257, json="{}"), "d.media_type"),
        (pb.Document(media_type="m"), "d"),
        (pb.Document(media_type="m", data=b"{}"), "d"),
        (pb.Document(media_type="m", json="[]"), "d.json"),
    ],
)
def test_a_document_that_is_no_object_is_refused(message, field):
    with pytest.raises(InvalidInputError) as caught:
        json_object_from_pb(message, field="d")

    assert caught.value.field == field
