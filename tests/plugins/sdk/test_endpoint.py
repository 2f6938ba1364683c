from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sagentry.plugins.sdk import EndpointError
from sagentry.plugins.sdk.endpoint import Endpoint, parse_endpoint, reserved


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a socket may have 107 bytes."""
    with TemporaryDirectory() as made:
        yield Path(made)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("unix:/run/p.sock", Endpoint(path=Path("/run/p.sock"))),
        ("unix:///run/p.sock", Endpoint(path=Path("/run/p.sock"))),
        ("127.0.0.1:7000", Endpoint(host="127.0.0.1", port=7000)),
        ("localhost:0", Endpoint(host="localhost", port=0)),
        ("[::1]:7000", Endpoint(host="[::1]", port=7000)),
    ],
)
def test_endpoints_are_sockets_or_ports(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7000",
        ":7000",
        "host",
        "host:",
        "host:port",
        "host:65536",
        "::1:7000",
        "unix:p.sock",
        "dns:///host:7000",
        "host:\u0667",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EndpointError):
        parse_endpoint(text)


def test_a_path_that_the_kernel_would_cut_is_refused_with_its_length() -> None:
    with pytest.raises(EndpointError, match="the path has 120 bytes"):
        parse_endpoint("unix:/" + "p" * 119)


def test_a_second_process_on_the_path_is_refused(folder: Path) -> None:
    endpoint = Endpoint(path=folder / "p.sock")

    with (
        reserved(endpoint),
        pytest.raises(EndpointError, match="another process listens there"),
        reserved(endpoint),
    ):
        pass


def test_the_path_is_free_again_afterwards(folder: Path) -> None:
    endpoint = Endpoint(path=folder / "p.sock")

    with reserved(endpoint):
        pass
    with reserved(endpoint):
        pass


def test_a_socket_that_a_dead_process_left_is_removed(folder: Path) -> None:
    path = folder / "p.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))

    with reserved(Endpoint(path=path)):
        assert not path.exists()


def test_a_listener_that_takes_no_lock_is_not_robbed(folder: Path) -> None:
    path = folder / "p.sock"
    with closing(socket.socket(socket.AF_UNIX)) as foreign:
        foreign.bind(str(path))
        foreign.listen()

        with pytest.raises(EndpointError, match="another process"), reserved(Endpoint(path=path)):
            pass

    assert path.exists()


def test_a_file_in_the_way_is_kept(folder: Path) -> None:
    path = folder / "p.sock"
    path.write_text("precious")

    with pytest.raises(EndpointError, match="not a socket"), reserved(Endpoint(path=path)):
        pass

    assert path.read_text() == "precious"


def test_a_missing_folder_is_named(folder: Path) -> None:
    path = folder / "none" / "p.sock"

    with pytest.raises(EndpointError, match="No such file"), reserved(Endpoint(path=path)):
        pass
