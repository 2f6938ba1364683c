"""Server reflection in both of its versions, for grpcurl and the like.

grpcio-reflection brings v1alpha only, and many tools speak only one of the two. Their messages are
the same on the wire and differ in the name of their package, so one servicer serves both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from sagentry.plugins.sdk.binding import Kind

V1_SERVICE = "grpc.reflection.v1.ServerReflection"
V1ALPHA_SERVICE = "grpc.reflection.v1alpha.ServerReflection"

_V1_FILE = "grpc/reflection/v1/reflection.proto"


def reflection_handlers(
    services: Iterable[str], files: Iterable[FileDescriptor], *, kind: Kind
) -> list[grpc.GenericRpcHandler]:
    """Returns the handlers of both versions.

    Args:
        services: Full names of the services to list, those of reflection left out.
        files: The files that describe them.
        kind: Whether the server is `grpc.server` or `grpc.aio.server`.
    """
    names = (*services, V1_SERVICE, V1ALPHA_SERVICE)
    servicers = {
        Kind.SYNCHRONOUS: reflection.ReflectionServicer,
        Kind.ASYNCHRONOUS: reflection.aio.ReflectionServicer,
    }
    # It calls nothing of the pool that _Symbols does not have.
    pool: Any = _Symbols(_pool(files))
    servicer = servicers[kind](names, pool=pool)
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [
        grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": method})
        for service in (V1_SERVICE, V1ALPHA_SERVICE)
    ]


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


def _pool(files: Iterable[FileDescriptor]) -> descriptor_pool.DescriptorPool:
    # A pool of its own: in the default pool the made-up v1 file would meet the real one as soon as
    # some library of the process brings it.
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    # With the error details, tools show an error's facts in place of bytes.
    known = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR, error_details_pb2.DESCRIPTOR)
    for file in (*files, *known):
        _add_with_dependencies(pool, file, added)
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
    file.package = "grpc.reflection.v1"
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = _renamed(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type = _renamed(method.input_type)
            method.output_type = _renamed(method.output_type)
    return file


def _renamed(type_name: str) -> str:
    return type_name.replace(".grpc.reflection.v1alpha.", ".grpc.reflection.v1.")
