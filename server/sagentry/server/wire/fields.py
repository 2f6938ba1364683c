"""What conversions of all types need: checks of fields, tables of enums, times."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from google.protobuf import duration_pb2, timestamp_pb2

from sagentry.server.domain.ids import is_valid_id
from sagentry.server.errors import InvalidInputError

E = TypeVar("E", bound=enum.Enum)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

ID_RULE = "must be 1 to 256 characters in the range ! to ~"
OPTIONAL_ID_RULE = "must be 0 to 256 characters in the range ! to ~"


class EnumWrapper(Protocol[V_co]):
    """An enum of the contract, as it is generated."""

    def Value(self, name: str) -> V_co:  # noqa: N802 - the generated name
        """Returns the number of a name."""


class EnumTable(Generic[E, V]):
    """The members of a domain enum beside the values of the same names in the contract."""

    def __init__(
        self, domain: type[E], contract: EnumWrapper[V], prefix: str, leave_out: Iterable[E] = ()
    ) -> None:
        """Pairs each member with the value `prefix` + its name."""
        left_out = set(leave_out)
        self._to_pb = {
            member: contract.Value(prefix + member.name)
            for member in domain
            if member not in left_out
        }
        self._from_pb: dict[V, E] = {value: member for member, value in self._to_pb.items()}

    def to_pb(self, member: E) -> V:
        """Returns the contract's value."""
        return self._to_pb[member]

    def from_pb(self, value: V) -> E | None:
        """Returns the domain's member; None for unset and unknown numbers."""
        return self._from_pb.get(value)

    def require(self, value: V, field: str) -> E:
        """Returns the domain's member.

        Raises:
            InvalidInputError: The number is unset or unknown.
        """
        member = self._from_pb.get(value)
        if member is None:
            known = ", ".join(one.name for one in self._to_pb)
            raise InvalidInputError(field, f"must be one of {known}", actual=value)
        return member


def require_id(text: str, field: str) -> str:
    """Returns a text that is an id.

    Raises:
        InvalidInputError: It is none.
    """
    if not is_valid_id(text):
        raise InvalidInputError(field, ID_RULE)
    return text


def optional_id(text: str, field: str) -> str:
    """Returns a text that is an id, or empty.

    Raises:
        InvalidInputError: It is neither.
    """
    if text and not is_valid_id(text):
        raise InvalidInputError(field, OPTIONAL_ID_RULE)
    return text


def require_length(text: str, limit: int, field: str) -> str:
    """Returns a text of at most `limit` characters.

    Raises:
        InvalidInputError: It is longer.
    """
    if len(text) > limit:
        problem = f"has {len(text)} characters and at most {limit} are allowed"
        raise InvalidInputError(field, problem, limit=limit, actual=len(text))
    return text


def time_to_pb(time: datetime) -> timestamp_pb2.Timestamp:
    """Returns a time as the contract writes it."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(time)
    return stamp


def time_from_pb(stamp: timestamp_pb2.Timestamp, field: str) -> datetime:
    """Returns a time in UTC, to the microsecond.

    Raises:
        InvalidInputError: It is outside of years 1 to 9999.
    """
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(field, "must be a time of the years 1 to 9999") from error


def duration_seconds(duration: duration_pb2.Duration) -> float:
    """Returns a duration in seconds, whatever its size."""
    return duration.seconds + duration.nanos / 1e9
