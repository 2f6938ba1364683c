"""`sagentry serve` with real plugins in processes of their own, seen from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as pb_grpc
from tests.support.hosts import is_alive, pids_in, until_dead, until_gone
from tests.support.serve import SAGENTRY, SECONDS, channel_to, serving, wait_healthy
from tests.support.servers import health_stub, short_folder
from tests.support.upper_plugin import config_with, launched, upper_plugin


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def plugin_list(server: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SAGENTRY, "plugin", "list", "--server", server],
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_plugins_of_all_three_transports_are_attached_and_listed(folder: Path) -> None:
    with (
        upper_plugin(folder) as (_, tcp),
        upper_plugin(folder, f"unix:{folder}/p.sock") as (_, unix),
    ):
        config = config_with(folder, launched=launched(), tcp=f"dns:///{tcp}", unix=unix)
        with serving(folder, "--config", config, "--listen", "127.0.0.1:0") as (_, [server]):
            wait_healthy(server)
            done = plugin_list(server, folder)

    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [[n, "attached"] for n in ("launched", "tcp", "unix")]


def test_each_plugin_that_cannot_be_used_is_one_clear_line(folder: Path) -> None:
    sock = f"unix:{folder}/s.sock"
    with upper_plugin(folder) as (_, other):
        config = config_with(
            folder,
            contract="agent_persistence",
            absent=f"unix:{folder}/nobody.sock",
            itself=sock,
            other=f"dns:///{other}",
        )
        with serving(folder, "--config", config, "--listen", sock):
            with channel_to(sock) as channel:
                for name in ("absent", "itself", "other"):
                    request = pb.TestCallRequest(plugin=name)
                    pb_grpc.AdminServiceStub(channel).TestCall(request, timeout=SECONDS)
            done = plugin_list(sock, folder)

    assert (done.returncode, done.stderr) == (1, "")
    problems = [line for line in done.stdout.splitlines() if line.endswith(")")]
    for problem, part in zip(
        problems,
        (
            "absent: nothing answers at unix:",
            "itself: a gRPC server answers, but it is not a Sagentry plugin",
            "other: does not serve sagentry.api.plugin.v1.AgentPersistenceService",
        ),
        strict=True,
    ):
        assert part in problem


def test_nothing_is_left_of_plugins_when_the_server_has_ended(folder: Path) -> None:
    config = config_with(folder, upper=launched(folder / "pid"))
    with serving(folder, "--config", config, "--listen", "127.0.0.1:0") as (process, [server]):
        wait_healthy(server)
        [pid] = pids_in(folder / "pid")

        process.terminate()
        _, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert "Traceback" not in errors
    assert not is_alive(pid)
    assert os.listdir(folder / "data" / "run") == []  # noqa: PTH208 - empty


async def test_plugins_die_with_a_killed_server_and_the_next_one_launches_them_again(
    folder: Path,
) -> None:
    config = config_with(folder, upper=launched(folder / "pid"))
    arguments = ("--config", config, "--listen", f"unix:{folder}/s.sock")
    with serving(folder, *arguments) as (process, [server]):
        wait_healthy(server)
        pids = pids_in(folder / "pid")
        process.kill()
        await until_dead(pids)
        await until_gone(folder / "data" / "run")

    with serving(folder, *arguments) as (_, [server]):
        wait_healthy(server)

        assert pids_in(folder / "pid") != pids


def test_a_plugin_is_used_again_after_its_own_restart(folder: Path) -> None:
    endpoint = f"unix:{folder}/p.sock"
    statuses = health_pb2.HealthCheckResponse
    config = config_with(folder, upper=endpoint)
    with (
        serving(folder, "--config", config, "--listen", "127.0.0.1:0") as (_, [server]),
        channel_to(server) as channel,
    ):
        with upper_plugin(folder, endpoint) as (plugin, _):
            wait_healthy(server, "plugin/upper")
            request = health_pb2.HealthCheckRequest(service="plugin/upper")
            watch = health_stub(channel).Watch(request, timeout=SECONDS)
            assert next(watch).status == statuses.SERVING
            plugin.kill()
            assert next(watch).status == statuses.NOT_SERVING

        with upper_plugin(folder, endpoint):
            assert next(watch).status == statuses.SERVING
            watch.cancel()


def test_a_server_without_configuration_says_what_to_do_next() -> None:
    with short_folder() as folder, serving(folder, "--listen", f"unix:{folder}/s") as (process, _):
        assert process.stdout is not None
        steps = [process.stdout.readline() for _ in range(3)]
        command = steps[0].partition(":  ")[2].split()

    assert command == ["sagentry", "chat", "--server", f"unix:{folder}/s"]
    assert steps[1].rstrip().endswith(f"grpcurl -plaintext -unix {folder}/s list")
    assert steps[2].rstrip().endswith("sagentry serve --config FILE")
