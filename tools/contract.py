"""Reads the protos as people read them: names, types and comments.

Compiled by buf, because its image keeps the comments. Values only; what is made of them is elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

Field = pb.FieldDescriptorProto

# Field numbers in descriptor.proto: how the paths of source comments are built.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_SYNTAX = 4, 5, 6, 12
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
ENUM_VALUE, SERVICE_METHOD = 2, 2


@dataclass(frozen=True)
class FieldDoc:
    name: str
    number: int
    type_name: str
    """A scalar's name, or the full name of a message or enum."""
    label: str
    """`repeated`, `optional` or empty."""
    oneof: str
    comment: str


@dataclass(frozen=True)
class OneofDoc:
    name: str
    comment: str


@dataclass(frozen=True)
class MessageDoc:
    full_name: str
    name: str
    """Without the package; nested ones as `Outer.Inner`."""
    comment: str
    fields: tuple[FieldDoc, ...]
    oneofs: tuple[OneofDoc, ...]


@dataclass(frozen=True)
class ValueDoc:
    name: str
    number: int
    comment: str


@dataclass(frozen=True)
class EnumDoc:
    full_name: str
    name: str
    comment: str
    values: tuple[ValueDoc, ...]


@dataclass(frozen=True)
class MethodDoc:
    name: str
    request: str
    response: str
    request_stream: bool
    response_stream: bool
    comment: str


@dataclass(frozen=True)
class ServiceDoc:
    full_name: str
    name: str
    comment: str
    methods: tuple[MethodDoc, ...]


@dataclass
class FileDoc:
    path: str
    package: str
    comment: str
    services: list[ServiceDoc] = field(default_factory=list)
    messages: list[MessageDoc] = field(default_factory=list)
    enums: list[EnumDoc] = field(default_factory=list)


Path_ = tuple[int, ...]


def unindent(comment: str) -> str:
    """A comment without the space after each `//`."""
    lines = [line.removeprefix(" ").rstrip() for line in comment.splitlines()]
    return "\n".join(lines).strip()


class _Reader:
    """Walks one file and looks up the comment of every path."""

    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._prefix = file.package + "."
        self._locations = {tuple(at.path): at for at in file.source_code_info.location}

    def comment(self, path: Path_) -> str:
        at = self._locations.get(path)
        return unindent(at.leading_comments or at.trailing_comments) if at else ""

    def file_comment(self) -> str:
        """What stands above `syntax`, without the licence."""
        at = self._locations.get((FILE_SYNTAX,))
        parts = [*at.leading_detached_comments, at.leading_comments] if at else []
        texts = [unindent(part) for part in parts]
        return "\n\n".join(text for text in texts if text and not text.startswith("Copyright"))

    def read(self) -> FileDoc:
        doc = FileDoc(self._file.name, self._file.package, self.file_comment())
        for index, service in enumerate(self._file.service):
            doc.services.append(self.service(service, (FILE_SERVICE, index)))
        for index, message in enumerate(self._file.message_type):
            self.message(message, (FILE_MESSAGE, index), "", doc)
        for index, enum in enumerate(self._file.enum_type):
            doc.enums.append(self.enum(enum, (FILE_ENUM, index), ""))
        return doc

    def service(self, service: pb.ServiceDescriptorProto, path: Path_) -> ServiceDoc:
        methods = tuple(
            MethodDoc(
                name=method.name,
                request=method.input_type.lstrip("."),
                response=method.output_type.lstrip("."),
                request_stream=method.client_streaming,
                response_stream=method.server_streaming,
                comment=self.comment((*path, SERVICE_METHOD, index)),
            )
            for index, method in enumerate(service.method)
        )
        return ServiceDoc(self._prefix + service.name, service.name, self.comment(path), methods)

    def message(self, message: pb.DescriptorProto, path: Path_, outer: str, doc: FileDoc) -> None:
        name = outer + message.name
        oneofs = tuple(
            OneofDoc(oneof.name, self.comment((*path, MESSAGE_ONEOF, index)))
            for index, oneof in enumerate(message.oneof_decl)
        )
        fields = tuple(
            self.field(item, (*path, MESSAGE_FIELD, index), oneofs)
            for index, item in enumerate(message.field)
        )
        real = tuple(oneof for oneof in oneofs if any(f.oneof == oneof.name for f in fields))
        doc.messages.append(MessageDoc(self._prefix + name, name, self.comment(path), fields, real))
        for index, nested in enumerate(message.nested_type):
            self.message(nested, (*path, MESSAGE_NESTED, index), name + ".", doc)
        for index, enum in enumerate(message.enum_type):
            doc.enums.append(self.enum(enum, (*path, MESSAGE_ENUM, index), name + "."))

    def field(self, item: Field, path: Path_, oneofs: Sequence[OneofDoc]) -> FieldDoc:
        scalar = Field.Type.Name(item.type).removeprefix("TYPE_").lower()
        label = "repeated" if item.label == Field.LABEL_REPEATED else ""
        in_oneof = item.HasField("oneof_index") and not item.proto3_optional
        return FieldDoc(
            name=item.name,
            number=item.number,
            type_name=item.type_name.lstrip(".") or scalar,
            label="optional" if item.proto3_optional else label,
            oneof=oneofs[item.oneof_index].name if in_oneof else "",
            comment=self.comment(path),
        )

    def enum(self, enum: pb.EnumDescriptorProto, path: Path_, outer: str) -> EnumDoc:
        values = tuple(
            ValueDoc(value.name, value.number, self.comment((*path, ENUM_VALUE, index)))
            for index, value in enumerate(enum.value)
        )
        name = outer + enum.name
        return EnumDoc(self._prefix + name, name, self.comment(path), values)


def buf(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Runs the buf of this environment; raises SystemExit with its own words if it fails."""
    command = [Path(sys.executable).with_name("buf"), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr).decode(errors="replace").strip())
    return done


def load(protos: Path) -> list[FileDoc]:
    """All files of a folder of protos, by path, without what they import from elsewhere."""
    built = buf("build", protos, "--as-file-descriptor-set", "--exclude-imports", "-o", "-")
    files = pb.FileDescriptorSet.FromString(built.stdout).file
    return [_Reader(file).read() for file in sorted(files, key=lambda file: file.name)]
