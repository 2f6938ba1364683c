from __future__ import annotations

from datetime import timedelta

import grpc
import pytest
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from sagentry.api.type.v1 import error_reason_pb2
from sagentry.plugins.sdk import (
    InvalidFieldError,
    OverloadedError,
    PluginError,
    QuotaExceededError,
    RequestIdReusedError,
    RevisionConflictError,
    ScopeDeniedError,
    ScopeRequiredError,
    StaleEpochError,
    StateCorruptError,
    group_error_of,
)
from sagentry.plugins.sdk.errors import status_of

CODES = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "code", "reason", "facts"),
    [
        (
            InvalidFieldError("items", "required"),
            CODES.INVALID_ARGUMENT,
            "FIELD_INVALID",
            {"field"},
        ),
        (ScopeRequiredError(), CODES.INVALID_ARGUMENT, "SCOPE_REQUIRED", {"field"}),
        (RequestIdReusedError("r"), CODES.ALREADY_EXISTS, "REQUEST_ID_REUSED", {"request_id"}),
        (ScopeDeniedError("c"), CODES.PERMISSION_DENIED, "SCOPE_DENIED", {"conversation_id"}),
        (
            StaleEpochError(epoch=7, current_epoch=8),
            CODES.FAILED_PRECONDITION,
            "STALE_EPOCH",
            {"epoch", "current_epoch"},
        ),
        (
            RevisionConflictError(revision=30, current_revision=31),
            CODES.ABORTED,
            "REVISION_CONFLICT",
            {"revision", "current_revision"},
        ),
        (StateCorruptError("c", "no JSON"), CODES.DATA_LOSS, "STATE_CORRUPT", {"conversation_id"}),
        (OverloadedError("busy"), CODES.UNAVAILABLE, "OVERLOADED", {"retry_after_seconds"}),
        (
            QuotaExceededError(limit=1, actual=2),
            CODES.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            {"limit", "actual"},
        ),
    ],
)
def test_each_error_has_the_code_and_reason_of_the_contract(
    error: PluginError, code: grpc.StatusCode, reason: str, facts: set[str]
) -> None:
    status = status_of(error, "com.example.store")

    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, info.reason, info.domain) == (code.value[0], reason, "com.example.store")
    assert set(info.metadata) == facts
    assert f"ERROR_REASON_{reason}" in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name


def test_only_a_quota_with_a_time_tells_the_host_to_wait() -> None:
    for_good = status_of(QuotaExceededError(limit=1, actual=2), "x")
    for_now = status_of(
        QuotaExceededError(limit=1, actual=2, retry_after=timedelta(seconds=9)), "x"
    )

    assert not any(each.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for each in for_good.details)
    assert any(each.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for each in for_now.details)


@given(
    message=st.text(max_size=4000),
    facts=st.dictionaries(st.text(min_size=1, max_size=40), st.text(max_size=4000), max_size=40),
    fields=st.lists(st.text(max_size=2000), max_size=40),
)
def test_no_error_is_over_the_size_that_headers_take(
    message: str, facts: dict[str, str], fields: list[str]
) -> None:
    error = PluginError(
        CODES.INVALID_ARGUMENT,
        "MINE",
        message,
        facts=facts,
        violations=[(field, "wrong") for field in fields],
    )

    status = status_of(error, "com.example.store")

    assert status.ByteSize() <= 4096
    assert len(status.message.encode()) <= 1024
    assert status.details[0].Is(error_details_pb2.ErrorInfo.DESCRIPTOR)


def test_a_group_of_writes_gets_the_same_facts() -> None:
    error = group_error_of(StaleEpochError(epoch=7, current_epoch=8))

    assert (error.code, error.reason) == (9, "STALE_EPOCH")
    assert {fact.key: fact.value for fact in error.facts} == {"epoch": "7", "current_epoch": "8"}


@pytest.mark.parametrize("reason", ["", "lower", "A" * 64, "9A"])
def test_a_reason_that_no_program_could_use_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        PluginError(CODES.ABORTED, reason, "text")


def test_an_error_cannot_be_ok() -> None:
    with pytest.raises(ValueError, match="other than OK"):
        PluginError(CODES.OK, "FINE", "text")
