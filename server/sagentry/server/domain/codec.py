"""Domain values as JSON text and back, for the state, its patches and the journal.

The form follows the types: a dataclass is an object with a key per field (fields at their default are
left out), an enum its value, bytes base64, a time ISO 8601 in UTC, a union a dataclass object with its
class name under `"$"`. Integers are exact and strings keep every character. Unknown keys are ignored, so
a field can be added; an unknown class name is an error, so nothing is silently lost.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

TAG = "$"


class UnreadableError(ValueError):
    """The text is not the JSON form of the expected type; the message names the place."""


def to_json(value: object, as_type: object) -> str:
    """Writes a value of `as_type` as JSON text in ASCII."""
    return json.dumps(_encoder(as_type)(value), separators=(",", ":"))


def from_json(text: str | bytes, as_type: type[T]) -> T:
    """Reads a value of `as_type`.

    Raises:
        UnreadableError: The text is not JSON, or not of that form.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"not JSON: {error}"
        raise UnreadableError(message) from error
    hint: Any = as_type  # mypy takes a `type[T]` for unhashable
    decoded: T = _decoder(hint)(raw, "")
    return decoded


Encode = Callable[[Any], Any]
Decode = Callable[[Any, str], Any]


@cache
def _encoder(hint: Any) -> Encode:  # noqa: PLR0911 - one return per kind of type
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_encoder(args)
    if origin in (tuple, list):
        item = _encoder(args[0])
        return lambda value: [item(one) for one in value]
    if origin is set:
        item = _encoder(args[0])
        return lambda value: [item(one) for one in sorted(value)]
    if origin is dict:
        item = _encoder(args[1])
        return lambda value: {key: item(one) for key, one in value.items()}
    if hint is bytes:
        return lambda value: base64.b64encode(value).decode("ascii")
    if hint is datetime:
        return lambda value: value.astimezone(UTC).isoformat()
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda value: value.value
    if dataclasses.is_dataclass(hint):
        return _dataclass_encoder(hint)
    return lambda value: value


def _union_encoder(args: tuple[Any, ...]) -> Encode:
    members = [arg for arg in args if arg is not type(None)]
    if len(members) == 1:
        inner = _encoder(members[0])
        return lambda value: None if value is None else inner(value)

    def encode(value: Any) -> Any:
        if value is None:
            return None
        member: Any = type(value)  # as in from_json
        return {TAG: member.__name__, **_encoder(member)(value)}

    return encode


def _dataclass_encoder(cls: Any) -> Encode:
    hints = typing.get_type_hints(cls)
    fields = [(f.name, _encoder(hints[f.name]), _default(f)) for f in dataclasses.fields(cls)]

    def encode(value: Any) -> Any:
        result = {}
        for name, encode_field, default in fields:
            held = getattr(value, name)
            if default is dataclasses.MISSING or held != default:
                result[name] = encode_field(held)
        return result

    return encode


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@cache
def _decoder(hint: Any) -> Decode:  # noqa: PLR0911, C901 - one return per kind of type
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(args)
    if origin in (tuple, list, set):
        item, build = _decoder(args[0]), origin

        def decode_items(raw: Any, place: str) -> Any:
            _expect(raw, list, place)
            return build(item(one, f"{place}[{i}]") for i, one in enumerate(raw))

        return decode_items
    if origin is dict:
        value_of = _decoder(args[1])

        def decode_dict(raw: Any, place: str) -> Any:
            _expect(raw, dict, place)
            return {key: value_of(one, f"{place}.{key}") for key, one in raw.items()}

        return decode_dict
    if hint is bytes:
        return _decode_bytes
    if hint is datetime:
        return _decode_time
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_decoder(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(hint)

    def decode_plain(raw: Any, place: str) -> Any:
        _expect(raw, hint, place)
        return raw

    return decode_plain


def _union_decoder(args: tuple[Any, ...]) -> Decode:
    members = [arg for arg in args if arg is not type(None)]
    optional = len(members) < len(args)
    single = _decoder(members[0]) if len(members) == 1 else None
    by_name = {getattr(member, "__name__", str(member)): member for member in members}

    def decode(raw: Any, place: str) -> Any:
        if raw is None and optional:
            return None
        if single is not None:
            return single(raw, place)
        _expect(raw, dict, place)
        name = raw.get(TAG)
        member = by_name.get(name) if isinstance(name, str) else None
        if member is None:
            message = f"{place}: unknown kind {name!r}"
            raise UnreadableError(message)
        return _decoder(member)(raw, place)

    return decode


def _dataclass_decoder(cls: Any) -> Decode:
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}

    def decode(raw: Any, place: str) -> Any:
        _expect(raw, dict, place)
        values = {
            name: _decoder(hints[name])(raw[name], f"{place}.{name}")
            for name in fields
            if name in raw
        }
        try:
            return cls(**values)
        except TypeError as error:
            message = f"{place}: {error}"
            raise UnreadableError(message) from error

    return decode


def _enum_decoder(hint: type[enum.Enum]) -> Decode:
    def decode(raw: Any, place: str) -> Any:
        try:
            return hint(raw)
        except ValueError as error:
            message = f"{place}: {error}"
            raise UnreadableError(message) from error

    return decode


def _decode_bytes(raw: Any, place: str) -> bytes:
    _expect(raw, str, place)
    try:
        return base64.b64decode(raw, validate=True)
    except ValueError as error:  # binascii.Error, or plain for characters that are not ASCII
        message = f"{place}: {error}"
        raise UnreadableError(message) from error


def _decode_time(raw: Any, place: str) -> datetime:
    _expect(raw, str, place)
    try:
        time = datetime.fromisoformat(raw)
        in_utc = time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"{place}: {error}"
        raise UnreadableError(message) from error
    if time.tzinfo is None:
        # Read as local time it would differ from machine to machine.
        message = f"{place}: time without a zone"
        raise UnreadableError(message)
    return in_utc


def _expect(raw: Any, kind: type, place: str) -> None:
    fits = isinstance(raw, kind) and not (kind is int and isinstance(raw, bool))
    if not fits:
        message = f"{place}: expected {kind.__name__}, found {type(raw).__name__}"
        raise UnreadableError(message)
