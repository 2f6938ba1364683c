"""`sagentry serve` as a process: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from sagentry.api.admin.v1 import admin_service_pb2 as pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as pb_grpc
from tests.support.serve import SECONDS, channel_to, serving, start
from tests.support.servers import health_stub, short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def is_answering(target: str) -> bool:
    with channel_to(target) as channel:
        request = pb.ListPluginsRequest()
        response = pb_grpc.AdminServiceStub(channel).ListPlugins(request, timeout=SECONDS)
    return isinstance(response, pb.ListPluginsResponse)


def outcome(folder: Path, *arguments: str) -> tuple[int, str]:
    process = start(folder, *arguments)
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


def test_the_ready_line_names_addresses_that_answer(folder: Path) -> None:
    sock = f"unix:{folder}/s.sock"

    with serving(folder, "--listen", sock, "--listen", "127.0.0.1:0") as (_, addresses):
        assert addresses[0] == sock
        assert not addresses[1].endswith(":0")
        assert all(is_answering(address) for address in addresses)


def test_a_proxy_that_leads_nowhere_does_not_matter(folder: Path) -> None:
    proxy = "http://127.0.0.1:9"

    with serving(
        folder, "--listen", "127.0.0.1:0", http_proxy=proxy, https_proxy=proxy, grpc_proxy=proxy
    ) as (_, [address]):
        assert is_answering(address)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_order_although_a_stream_is_open(
    folder: Path, number: signal.Signals
) -> None:
    sock = f"unix:{folder}/s.sock"
    with serving(folder, "--listen", sock) as (process, [address]), channel_to(address) as channel:
        watch = health_stub(channel).Watch(health_pb2.HealthCheckRequest())
        # The store that is launched by default attaches in its own time.
        assert any(answer.status == health_pb2.HealthCheckResponse.SERVING for answer in watch)

        process.send_signal(number)

        with pytest.raises(grpc.RpcError) as caught:
            list(watch)
        _, errors = process.communicate(timeout=SECONDS)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert not (folder / "s.sock").exists()


def test_an_admin_can_end_the_server(folder: Path) -> None:
    with serving(folder, "--listen", "127.0.0.1:0") as (process, [address]):
        with channel_to(address) as channel:
            stub = pb_grpc.AdminServiceStub(channel)
            response = stub.DrainServer(pb.DrainServerRequest(), timeout=SECONDS)

        assert response.HasField("end_time")
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0


def test_a_killed_server_is_followed_by_the_next_one_on_the_same_socket_and_folder(
    folder: Path,
) -> None:
    sock = f"unix:{folder}/s.sock"
    with serving(folder, "--listen", sock) as (process, _):
        process.kill()
        process.wait(timeout=SECONDS)
    assert (folder / "s.sock").exists()

    with serving(folder, "--listen", sock):
        assert is_answering(sock)


def test_a_second_server_on_the_same_folder_is_one_clear_line(folder: Path) -> None:
    with serving(folder, "--listen", "127.0.0.1:0") as (process, [address]):
        data = folder / "data"
        code, errors = outcome(folder, "--data-dir", str(data), "--listen", "127.0.0.1:0")

        assert code == 1
        assert errors == (
            f"sagentry: data folder {data} is in use by another server (pid {process.pid})\n"
        )
        assert is_answering(address)


def test_a_second_server_on_the_same_port_is_one_clear_line(folder: Path) -> None:
    with serving(folder, "--listen", "127.0.0.1:0") as (_, [address]):
        other = folder / "other"
        code, errors = outcome(folder, "--data-dir", str(other), "--listen", address)

        assert code == 1
        assert errors == f"sagentry: address {address} is in use\n"
        assert is_answering(address)


def test_wrong_settings_are_one_clear_line(folder: Path) -> None:
    config = folder / "c.yaml"
    config.write_text("\nlissten: []\n")

    code, errors = outcome(folder, "--config", str(config))

    assert code == 2
    assert errors == f"sagentry: {config}:2: unknown key 'lissten'; did you mean 'listen'?\n"


def test_listening_off_loopback_by_mistake_is_one_clear_line(folder: Path) -> None:
    code, errors = outcome(folder, "--listen", "0.0.0.0:0")

    assert code == 2
    assert errors.startswith("sagentry: option --listen: listen.0: 0.0.0.0:0 can be reached")
    assert errors.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_clear_line(folder: Path) -> None:
    code, errors = outcome(folder, "--data-dir", "/proc/sagentry", "--listen", "127.0.0.1:0")

    assert code == 1
    assert errors.startswith("sagentry: data folder /proc/sagentry cannot be used: ")
    assert errors.count("\n") == 1


def test_an_unknown_option_is_wrong_usage(folder: Path) -> None:
    code, errors = outcome(folder, "--nope")

    assert code == 2
    assert "No such option" in errors
