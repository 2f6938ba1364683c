"""Runs `sagentry serve` as a user does: the installed command, in a process and an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import grpc
from grpc_health.v1 import health_pb2

from tests.support.servers import health_stub

SAGENTRY = Path(sys.executable).with_name("sagentry")
SECONDS = 20
"""How long a process may take to end, and a call to be answered."""


def start(
    folder: Path, *arguments: str, errors: int | IO[str] = subprocess.PIPE, **variables: str
) -> subprocess.Popen[str]:
    """Starts a server; its home and working folder are the folder.

    Args:
        folder: Where it runs.
        *arguments: Of `sagentry serve`.
        errors: Where its log goes; a pipe that nobody reads holds 64 KiB.
        **variables: Its environment beside HOME.
    """
    return subprocess.Popen(
        [SAGENTRY, "serve", *arguments],
        cwd=folder,
        env={"HOME": str(folder), **variables},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


@contextmanager
def serving(
    folder: Path, *arguments: str, errors: int | IO[str] = subprocess.PIPE, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Runs a server on the data folder `data` in the folder; yields it and its addresses."""
    data = str(folder / "data")
    process = start(folder, "--data-dir", data, *arguments, errors=errors, **variables)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"sagentry: ready on (.+)\n", line)
        assert match is not None, (line, process.communicate(timeout=SECONDS))
        yield process, match[1].split(", ")
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process in order, so that what it has launched ends first; kills one that does not end."""
    process.terminate()
    try:
        process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


@contextmanager
def channel_to(target: str) -> Iterator[grpc.Channel]:
    """Opens a channel without an event loop."""
    with grpc.insecure_channel(target, (("grpc.enable_http_proxy", 0),)) as channel:
        yield channel


def wait_healthy(target: str, name: str = "") -> None:
    """Returns when health says SERVING: of the server with all of its plugins, or of one name."""
    with channel_to(target) as channel:
        watch = health_stub(channel).Watch(
            health_pb2.HealthCheckRequest(service=name), timeout=SECONDS, wait_for_ready=True
        )
        for response in watch:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                watch.cancel()
                return
