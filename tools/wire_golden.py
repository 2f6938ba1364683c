#!/usr/bin/env python3
"""Keeps tests/golden/wire: an example of each public message and the bytes it has on the wire.

    tools/wire_golden.py            writes the examples of messages that have none, and all bytes anew
    tools/wire_golden.py --check    exit 1 if an example or its bytes are not what the protos say

Each message has one example with every field set, and one more for each further arm of a oneof. A changed
byte is a change that old readers and writers notice: it belongs into CHANGELOG.md with a reason.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "wire"
PROTOS = ROOT / "protos"
DEEPEST = 3
"""Messages that hold themselves are filled this deep."""

EMPTY = "-"
"""Stands for no bytes."""

_SCALARS: dict[int, object] = {
    FieldDescriptor.CPPTYPE_INT32: 7,
    FieldDescriptor.CPPTYPE_UINT32: 7,
    FieldDescriptor.CPPTYPE_INT64: 9007199254740993,
    FieldDescriptor.CPPTYPE_UINT64: 9007199254740993,
    FieldDescriptor.CPPTYPE_BOOL: True,
}


def files() -> Iterator[FileDescriptor]:
    """The descriptors of all protos of the contract."""
    for path in sorted(PROTOS.rglob("*.proto")):
        module = path.relative_to(PROTOS).with_suffix("").as_posix().replace("/", ".") + "_pb2"
        yield importlib.import_module(module).DESCRIPTOR


def examples(descriptor: Descriptor) -> Iterator[tuple[str, Message]]:
    """Named examples of a message: the full one first, then one for each further arm."""
    yield "full", filled(descriptor, {}, DEEPEST)
    for oneof in descriptor.oneofs:
        for arm in oneof.fields[1:]:
            yield arm.name, filled(descriptor, {oneof.name: arm.name}, DEEPEST)


def filled(descriptor: Descriptor, arms: dict[str, str], depth: int) -> Message:
    """A message with every field set; of each oneof the named arm, or the first."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and arms.get(oneof.name, oneof.fields[0].name) != field.name:
            continue
        _fill(message, field, depth)
    return message


def _fill(message: Message, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None:
        if depth == 0:
            return
        inner = filled(field.message_type, {}, depth - 1)
        if field.is_repeated:
            getattr(message, field.name).add().CopyFrom(inner)
        else:
            getattr(message, field.name).CopyFrom(inner)
        return
    value = _value(field)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _value(field: FieldDescriptor) -> object:
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    if field.name == "nanos":
        return 500_000_000
    if field.name == "seconds":
        return 1_767_225_600
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\x00\xff" + field.name.encode()
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{field.name} é\U0001f600"
    return _SCALARS[field.cpp_type]


def render(file: FileDescriptor) -> str:
    """The golden text of a proto: for each example its name, its JSON form, its bytes in hex."""
    blocks = []
    for descriptor in file.message_types_by_name.values():
        for name, message in examples(descriptor):
            text = json_format.MessageToJson(message, indent=None, ensure_ascii=True)
            raw = message.SerializeToString(deterministic=True)
            blocks.append(f"{descriptor.full_name} {name}\n{text}\n{raw.hex() or EMPTY}\n")
    return "\n".join(blocks)


def golden_path(file: FileDescriptor) -> Path:
    """Where the golden text of a proto is kept."""
    return GOLDEN / (file.name.removeprefix("sagentry/api/").replace("/", ".") + ".txt")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    expected = {golden_path(file): render(file) for file in files() if file.message_types_by_name}
    stale = [
        path
        for path, text in expected.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    extra = [path for path in GOLDEN.glob("*.txt") if path not in expected]
    if check:
        for path in [*stale, *extra]:
            print(f"{path.relative_to(ROOT)}: not what the protos say; if meant: make golden")
        return 1 if stale or extra else 0
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(expected[path], encoding="utf-8")
    for path in extra:
        path.unlink()
    print(f"{len(stale)} written, {len(extra)} removed, {len(expected)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
