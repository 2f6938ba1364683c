"""A call without a proper scope never reaches anybody's data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from sagentry.api.type.v1 import scope_pb2
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import InvalidInputError
from sagentry.server.wire.scope import scope_from_pb, scope_to_pb
from tests.support import strategies


def scoped(**fields: Any) -> scope_pb2.Scope:
    return scope_pb2.Scope(scoped=scope_pb2.Scoped(**fields))


def test_a_tenant_with_its_context_is_taken_over() -> None:
    message = scoped(tenant="acme", partition="u-1", media_type="text/plain", payload=b"p")

    scope = scope_from_pb(message)

    assert scope == Scope(ScopeKey(ScopeKind.SCOPED, "acme", "u-1"), "text/plain", b"p")


def test_unscoped_is_a_namespace_of_its_own() -> None:
    scope = scope_from_pb(scope_pb2.Scope(unscoped=scope_pb2.Unscoped()))

    assert scope.key == ScopeKey(ScopeKind.UNSCOPED)


@pytest.mark.parametrize(
    "message",
    [
        scope_pb2.Scope(),
        # A kind that a newer contract may add: field 9.
        scope_pb2.Scope.FromString(b"\x4a\x00"),
    ],
)
def test_a_missing_or_unknown_scope_never_means_everybody(message: scope_pb2.Scope) -> None:
    with pytest.raises(InvalidInputError) as caught:
        scope_from_pb(message)

    assert caught.value.reason == "SCOPE_REQUIRED"
    assert caught.value.field == "scope"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (scoped(), "scope.scoped.tenant"),
        (scoped(tenant="a b"), "scope.scoped.tenant"),
        (scoped(tenant="t" * 257), "scope.scoped.tenant"),
        (scoped(tenant="tenant\n"), "scope.scoped.tenant"),
        (scoped(tenant="t", partition="ü"), "scope.scoped.partition"),
        (scoped(tenant="t", partition="p" * 257), "scope.scoped.partition"),
        (scoped(tenant="t", media_type="text/plain"), "scope.scoped.media_type"),
        (scoped(tenant="t", media_type="x\r\n", payload=b"p"), "scope.scoped.media_type"),
        (scoped(tenant="t", payload=b"p" * 4097), "scope.scoped.payload"),
    ],
)
def test_a_malformed_part_is_named(message: scope_pb2.Scope, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        scope_from_pb(message)

    assert caught.value.reason == "FIELD_INVALID"
    assert caught.value.field == field


def test_an_error_about_the_payload_does_not_show_it() -> None:
    with pytest.raises(InvalidInputError) as caught:
        scope_from_pb(scoped(tenant="t", payload=b"hunter2" * 1000))

    assert "hunter2" not in f"{caught.value}{caught.value.metadata}"


@given(strategies.scopes)
def test_a_scope_survives_the_wire(scope):
    encoded = scope_to_pb(scope).SerializeToString()

    assert scope_from_pb(scope_pb2.Scope.FromString(encoded)) == scope
