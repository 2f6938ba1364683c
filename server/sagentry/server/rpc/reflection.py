"""Server reflection in both of its versions.

grpcio-reflection brings v1alpha only, and many tools speak only one of the two. Their messages are
the same on the wire and differ in the name of their package, so one servicer serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from sagentry.server.rpc.names import (
    ADMIN,
    AGENT,
    EVENT,
    REFLECTION_V1_SERVICE,
    REFLECTION_V1ALPHA_SERVICE,
)

_V1_FILE = "grpc/reflection/v1/reflection.proto"
_V1_PACKAGE = "grpc.reflection.v1"
_V1ALPHA_PACKAGE = "grpc.reflection.v1alpha"

_FILES = (
    AGENT.file.name,
    EVENT.file.name,
    ADMIN.file.name,
    health_pb2.DESCRIPTOR.name,
    reflection_pb2.DESCRIPTOR.name,
    # With these, tools show the details of an error instead of bytes.
    error_details_pb2.DESCRIPTOR.name,
)


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Adds both versions of the reflection service.

    Args:
        server: A server that is not started.
        services: Full names of the services to list, those of reflection left out.
    """
    names = (*services, REFLECTION_V1_SERVICE, REFLECTION_V1ALPHA_SERVICE)
    # It calls nothing of the pool that _Symbols does not have.
    pool: Any = _Symbols(described_files())
    servicer = reflection_aio.ReflectionServicer(names, pool=pool)
    handlers = {
        "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
    }
    # Not add_registered_method_handlers: in the oldest supported grpcio it does nothing.
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(service, handlers)
            for service in (REFLECTION_V1_SERVICE, REFLECTION_V1ALPHA_SERVICE)
        )
    )


class _Symbols:
    """A pool that finds methods, too: protobuf's own finds whatever has a name but them."""

    def __init__(self, pool: descriptor_pool.DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> object:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's name
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service_name, _, method = symbol.rpartition(".")
            service = self._pool.FindServiceByName(service_name)
            if method not in service.methods_by_name:
                raise
            return service.file


def described_files() -> descriptor_pool.DescriptorPool:
    """Returns a pool with everything that reflection describes, the v1 service included.

    A pool of its own: in the default pool the made-up v1 file would meet the real one as soon as
    some library of the process brings it.
    """
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in _FILES:
        _add_with_dependencies(pool, descriptor_pool.Default().FindFileByName(name), added)
    pool.AddSerializedFile(_v1_file().SerializeToString())
    return pool


def _add_with_dependencies(
    pool: descriptor_pool.DescriptorPool, file: FileDescriptor, added: set[str]
) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for dependency in file.dependencies:
        _add_with_dependencies(pool, dependency, added)
    pool.AddSerializedFile(file.serialized_pb)


def _v1_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name = _V1_FILE
    file.package = _V1_PACKAGE
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            if not field.HasField("type_name"):
                continue
            field.type_name = _renamed(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type = _renamed(method.input_type)
            method.output_type = _renamed(method.output_type)
    return file


def _renamed(type_name: str) -> str:
    return type_name.replace(f".{_V1ALPHA_PACKAGE}.", f".{_V1_PACKAGE}.")
