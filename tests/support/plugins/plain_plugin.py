"""A plugin from plain stubs, without the SDK, that can misbehave in every way a test needs.

    python -m tests.support.plugins.plain_plugin [--endpoint …] [--fault NAME]...

It serves AgentPersistenceService with one behaviour per conversation_id: `absent` (nothing is stored),
`found`, `unset`, `echo`, `hang`, `not-found`, `overloaded`, `stale`, `long-details`, `data-loss`, `garbage`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import uuid
from concurrent import futures

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from sagentry.api.plugin.v1 import agent_persistence_pb2 as state_pb
from sagentry.api.plugin.v1 import agent_persistence_pb2_grpc as state_grpc
from sagentry.api.plugin.v1 import plugin_pb2 as plugin_pb
from sagentry.api.plugin.v1 import plugin_pb2_grpc as plugin_grpc

CONTRACT = "sagentry.api.plugin.v1.AgentPersistenceService"
SECRET = "postgres://user:secret@db"  # noqa: S105 - what must not reach a client


class Info(plugin_grpc.PluginServiceServicer):
    def __init__(self, faults: set[str]) -> None:
        self.faults = faults
        self.instance_id = uuid.uuid4().hex
        self.calls = 0

    def GetPluginInfo(self, request, context):  # noqa: N802
        self.calls += 1
        if "first-info-fails" in self.faults and self.calls == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        version = (
            "v7" if "new-version" in self.faults else "v0" if "old-version" in self.faults else "v1"
        )
        response = plugin_pb.GetPluginInfoResponse(
            request_id="another" if "info-echo" in self.faults else request.context.request_id,
            name="" if "no-name" in self.faults else "com.example.plain",
            version="1.0.0",
            instance_id=self.instance_id,
            capabilities=[
                plugin_pb.PLUGIN_CAPABILITY_ADVERTISED,
                plugin_pb.PLUGIN_CAPABILITY_REPORT_ATTACHMENT,
            ],
        )
        contract = response.contracts.add(service=CONTRACT.replace(".v1.", f".{version}."))
        contract.agent_persistence.capabilities.extend(
            [
                state_pb.AGENT_PERSISTENCE_CAPABILITY_ADVERTISED,
                state_pb.AGENT_PERSISTENCE_CAPABILITY_FENCING,
            ]
        )
        response.limits.max_request_bytes = 100_000
        return response

    def ReportAttachment(self, request, context):  # noqa: ARG002, N802
        print(f"attachment {request.outcome}: {[p.message for p in request.problems]}", flush=True)  # noqa: T201
        return plugin_pb.ReportAttachmentResponse(request_id=request.context.request_id)


def refuse(
    context, code: grpc.StatusCode, reason: str, facts: dict[str, str], text: str = "no"
) -> None:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="plain", metadata=facts))
    status = status_pb2.Status(code=code.value[0], message=text, details=[detail])
    context.abort_with_status(rpc_status.to_status(status))


class States(state_grpc.AgentPersistenceServiceServicer):
    def LoadState(self, request, context):  # noqa: N802
        behaviour = request.context.conversation_id
        response = state_pb.LoadStateResponse(request_id=request.context.request_id)
        match behaviour:
            case "unset":
                return response
            case "echo":
                response.request_id = "another"
                response.absent.owner_epoch = 1
                return response
            case "hang":
                context.add_callback(HUNG.set)
                HUNG.wait()
            case "not-found":
                context.abort(grpc.StatusCode.NOT_FOUND, "no such route")
            case "raises":
                raise RuntimeError(SECRET)
            case "overloaded":
                refuse(context, grpc.StatusCode.UNAVAILABLE, "OVERLOADED", {})
            case "stale":
                refuse(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "STALE_EPOCH",
                    {"current_epoch": "9"},
                )
            case "long-details":
                facts = {"x": "y" * 20_000}
                refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH", facts)
            case "data-loss":
                refuse(context, grpc.StatusCode.DATA_LOSS, "STATE_CORRUPT", {}, SECRET)
        response.absent.owner_epoch = 1
        return response


class Hung:
    """Holds hanging calls until their caller is gone."""

    def __init__(self) -> None:
        import threading  # noqa: PLC0415

        self._event = threading.Event()
        self.set, self.wait = self._event.set, self._event.wait


HUNG = Hung()


def serve(endpoint: str, faults: set[str]) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    if "no-plugin" not in faults:
        plugin_grpc.add_PluginServiceServicer_to_server(Info(faults), server)
    state_grpc.add_AgentPersistenceServiceServicer_to_server(States(), server)  # type: ignore[abstract] # the others are not called
    if "no-health" not in faults:
        checks = health.HealthServicer()
        for name in ("", CONTRACT):
            serving = health_pb2.HealthCheckResponse.SERVING
            checks.set(
                name,
                health_pb2.HealthCheckResponse.NOT_SERVING if "not-serving" in faults else serving,
            )
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    port = server.add_insecure_port(endpoint)
    server.start()
    print(f"serving {port} {os.getpid()}", flush=True)  # noqa: T201
    server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", default=os.environ.get("SAGENTRY_PLUGIN_ENDPOINT", ""))  # noqa: TID251
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--pid-file", default="")
    arguments = parser.parse_args()
    faults = set(arguments.fault)
    pids = [os.getpid()]
    if "ignore-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "grandchild" in faults:
        # Holds the output and has left the group: what an ordinary kill leaves behind.
        sleeper = [sys.executable, "-c", "import signal; signal.signal(15, 1); signal.pause()"]
        pids.append(subprocess.Popen(sleeper, start_new_session=True).pid)
    if arguments.pid_file:
        with open(arguments.pid_file, "w") as file:  # noqa: PTH123
            file.write(" ".join(map(str, pids)))
    if "banner" in faults:
        print("Welcome!\n|||| 1|1|tcp|127.0.0.1:1|grpc\nready", flush=True)  # noqa: T201
    if "flood" in faults:
        sys.stdout.write("x" * 50_000_000 + "\n")
        sys.stdout.flush()
    if "exit" in faults:
        sys.exit(3)
    serve(arguments.endpoint, faults)


if __name__ == "__main__":
    main()
