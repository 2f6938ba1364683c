"""The few lines of the wire format that joining encoded messages needs.

Encoded fields may be joined in any number: a message is the concatenation of its fields, and a repeated
field the concatenation of its items. Written in the order of their numbers they are byte for byte what
the generated serializer writes.
"""

from __future__ import annotations

_VARINT = 0
_LENGTH_DELIMITED = 2


def varint(number: int) -> bytes:
    """Encodes a number that is not negative."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte, the eighth says that more follow
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def message_field(number: int, encoded: bytes) -> bytes:
    """Frames an encoded message, or any bytes or text, as a field."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(encoded)) + encoded


def number_field(number: int, value: int) -> bytes:
    """Encodes a number as a field; nothing for 0, as proto3 does."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""
