"""`serve` as the main function of a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from sagentry.api.plugin.v1 import message_preprocessor_pb2_grpc as pb_grpc
from sagentry.plugins.sdk import ENDPOINT_VARIABLE
from tests.support.sdk_plugins import request

ROOT = Path(__file__).parents[3]
KINDS = pytest.mark.parametrize("kind", ["Threaded", "Looped"])


@pytest.fixture
def path() -> Iterator[Path]:
    """Short: the path of a socket may have 107 bytes."""
    with TemporaryDirectory() as folder:
        yield Path(folder) / "p.sock"


def command(kind: str, options: str = "") -> list[str]:
    code = (
        "from datetime import timedelta\n"
        "from sagentry.plugins.sdk import serve\n"
        f"from tests.support.sdk_plugins import {kind}\n"
        f"serve({kind}(), name='com.example.probe', version='1', {options})"
    )
    return [sys.executable, "-c", code]


@contextmanager
def launched(kind: str, path: Path, options: str = "") -> Iterator[subprocess.Popen[str]]:
    """Starts a plugin as the host does, and waits until it answers."""
    process = subprocess.Popen(
        ["/usr/bin/env", f"{ENDPOINT_VARIABLE}=unix:{path}", *command(kind, options)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        call(path, "hello", wait_for_ready=True)
        yield process
    finally:
        process.kill()
        process.communicate()


def call(path: Path, text: str, *, wait_for_ready: bool = False) -> str:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = pb_grpc.MessagePreprocessorServiceStub(channel)
        answer = stub.PreprocessMessage(request(text), timeout=20, wait_for_ready=wait_for_ready)
        return answer.request_id


@KINDS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(kind: str, number: signal.Signals, path: Path) -> None:
    with launched(kind, path) as process:
        process.send_signal(number)
        _, log = process.communicate(timeout=20)

    assert process.returncode == 0, log
    assert "com.example.probe serves MessagePreprocessorService on unix:" in log
    assert "Traceback" not in log
    assert not path.exists()


@KINDS
def test_a_call_that_outlasts_the_budget_does_not_keep_the_process(kind: str, path: Path) -> None:
    with (
        launched(kind, path, "stop_budget=timedelta(seconds=0.05)") as process,
        grpc.insecure_channel(f"unix:{path}") as channel,
    ):
        stub = pb_grpc.MessagePreprocessorServiceStub(channel)
        hanging = stub.PreprocessMessage.future(request("wait"), timeout=20)
        assert stub.PreprocessMessage(request("hello"), timeout=20).request_id == "r-1"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)

        assert process.returncode == 0, log
        assert "calls still run" in log
        assert hanging.exception(timeout=20) is not None


@KINDS
def test_a_second_signal_ends_it_at_once(kind: str, path: Path) -> None:
    with (
        launched(kind, path, "stop_budget=timedelta(minutes=10)") as process,
        grpc.insecure_channel(f"unix:{path}") as channel,
    ):
        stub = pb_grpc.MessagePreprocessorServiceStub(channel)
        hanging = stub.PreprocessMessage.future(request("wait"), timeout=20)
        assert stub.PreprocessMessage(request("hello"), timeout=20).request_id == "r-1"
        process.send_signal(signal.SIGTERM)
        refused_from_now_on(path)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=20) == 0
        assert hanging.exception(timeout=20) is not None


def refused_from_now_on(path: Path) -> None:
    """Returns when the first signal has taken effect: new connections are refused."""
    while True:
        try:
            call(path, "hello")
        except grpc.RpcError:
            return


@KINDS
def test_the_socket_of_a_killed_plugin_is_taken_over(kind: str, path: Path) -> None:
    with launched(kind, path) as process:
        process.kill()
        process.wait(timeout=20)
    assert path.exists()

    with launched(kind, path):
        assert call(path, "hello") == "r-1"


def test_what_is_wrong_is_one_line(path: Path) -> None:
    with launched("Looped", path):
        taken = subprocess.run(
            command("Looped", f"endpoint='unix:{path}'"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    without = subprocess.run(
        ["/usr/bin/env", "-u", ENDPOINT_VARIABLE, *command("Looped")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (taken.returncode, without.returncode) == (1, 1)
    assert taken.stderr == (
        f"com.example.probe: cannot listen on {path}: another process listens there\n"
    )
    assert without.stderr == (
        "com.example.probe: no endpoint: pass `endpoint` or set SAGENTRY_PLUGIN_ENDPOINT\n"
    )
