"""Fan-out: one agent's events to many subscribers, against a bare grpc.aio loop and against SSE.

Every number is from this run, on this machine, with the same client. Batching is what wins against a loop
that writes one event per response, so the same loop with the same batching is shown beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.report import ROUNDS, Report, Target, interleaved

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "build" / "bench-venv" / "bin" / "python"
PATIENCE_S = 120


@dataclass(frozen=True)
class Server:
    """A server to measure: a module of bench.fanout and its arguments."""

    module: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    client: tuple[str, ...] = ()

    @contextlib.contextmanager
    def running(self, streams: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Yields the process and its address; kills it in the end."""
        command = [self.python, "-m", f"bench.fanout.{self.module}", *self.arguments]
        command += ["--streams", str(streams)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - a pipe was asked for
                yield process, process.stdout.readline().strip()
            finally:
                process.kill()

    def load(self, streams: int, *arguments: object) -> dict[str, float]:
        """Returns what the client measures."""
        with (
            self.running(streams) as (_, address),
            _client(address, "--streams", streams, *arguments, *self.client) as client,
        ):
            out, _ = client.communicate(timeout=PATIENCE_S)
            measured: dict[str, float] = json.loads(out.splitlines()[-1])
            return measured

    def idle_bytes(self, streams: int) -> float:
        """Returns what an idle stream adds to the server's resident memory."""
        with self.running(streams) as (process, address):
            # The first streams pay for what all share.
            with _client(address, "--streams", 50, "--seconds", 0, "--warm-up", 0) as client:
                client.communicate(timeout=PATIENCE_S)
            before = _resident(process.pid)
            with _client(address, "--streams", streams, "--seconds", 3600) as client:
                assert client.stdout is not None  # noqa: S101 - a pipe was asked for
                client.stdout.readline()
                time.sleep(1)  # noqa: TID251 - until the server has nothing left to do
                added = _resident(process.pid) - before
                client.kill()
            return added / streams


@contextlib.contextmanager
def _client(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.fanout.load", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as client:
        try:
            yield client
        finally:
            client.kill()


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def ours(rate: float = 0) -> Server:
    return Server("serve_sagentry", ("--rate", str(rate)))


def bare(rate: float = 0, *, batch: bool = False) -> Server:
    return Server("serve_bare", ("--rate", str(rate), *(["--batch"] if batch else [])))


SSE = Server("serve_sse", python=str(BASELINES), client=("--sse",))


def throughput(report: Report, options: argparse.Namespace) -> None:
    """Delivered events a second, everybody as fast as they can."""
    against: Sequence[tuple[str, str, Server, Sequence[int], float]] = (
        ("bare", "a bare loop, one event per response", bare(), (10, 100, 500), 10),
        (
            "bare_batching",
            "the bare loop with the same batching",
            bare(batch=True),
            (10, 100, 500),
            0.6,
        ),
        ("sse", "SSE, one event per write", SSE, (100,), 3),
    )
    for name, what, baseline, counts, target in against:
        for streams in counts:
            pairs = interleaved(
                partial(_events_per_s, ours(), streams, options.seconds),
                partial(_events_per_s, baseline, streams, options.seconds),
                rounds=options.rounds,
            )
            title = f"events/s delivered to {streams} subscribers, against {what}"
            report.add(f"events.{name}.{streams}", title, pairs, "events/s", Target(target))


def _events_per_s(server: Server, streams: int, seconds: float) -> float:
    return server.load(streams, "--seconds", seconds)["events_per_s"]


def latency(report: Report, options: argparse.Namespace) -> None:
    """The 99th percentile of the time from an event's making to its reading."""
    for rate, target in ((1000, 0.05), (50, 1.3)):
        pairs = interleaved(
            partial(_p99, ours(rate), 100, options.seconds),
            partial(_p99, bare(rate), 100, options.seconds),
            rounds=options.rounds,
        )
        title = f"p99 latency of {rate} events/s to 100 subscribers, against a bare loop"
        report.add(f"p99.{rate}", title, pairs, "ms", Target(target, at_most=True))
    pairs = interleaved(
        partial(_p99, ours(1000), 1, options.seconds, "--stalled", 20),
        partial(_p99, ours(1000), 1, options.seconds),
        rounds=options.rounds,
    )
    title = (
        "p99 latency of 1000 events/s to 1 reader beside 20 that never read, against without them"
    )
    report.add("p99.stalled", title, pairs, "ms", Target(1.3, at_most=True))


def _p99(server: Server, streams: int, seconds: float, *more: object) -> float:
    return server.load(streams, "--seconds", seconds, "--timed", *more)["p99_ms"]


def memory(report: Report, options: argparse.Namespace) -> None:
    """What an idle subscriber takes."""
    report.add(
        "memory.idle",
        f"resident memory of an idle subscriber of {options.idle}, against a bare stream",
        interleaved(
            lambda: ours(-1).idle_bytes(options.idle),
            lambda: bare(-1).idle_bytes(options.idle),
            rounds=options.rounds,
        ),
        "bytes",
        Target(1.3, at_most=True),
    )


PARTS = {"throughput": throughput, "latency": latency, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--only", choices=PARTS, help="one part; the others keep their numbers")
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in {None, name}:
            report = Report(f"fan_out.{name}")
            part(report, options)
            report.write()


if __name__ == "__main__":
    main()
