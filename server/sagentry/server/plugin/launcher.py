"""Stands between the server and a plugin that the server launches, so that nothing outlives the server.

Run as a script with the standard library only:

    python -I -S launcher.py FOLDER PROGRAM [ARGUMENT ...]

Standard input is a pipe that the server holds and never writes to: its end means that the server is gone,
however it went. The plugin finds in SAGENTRY_PLUGIN_ENDPOINT where to listen. At the end, or on SIGTERM,
the plugin's process group gets SIGTERM, after a grace SIGKILL, and so does whatever descends from it, also
what has left the group: on Linux this process adopts orphans. FOLDER, which holds the plugin's socket, is
removed. The exit code is the plugin's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ENDPOINT_VARIABLE = "SAGENTRY_PLUGIN_ENDPOINT"
"""Environment variable that tells a launched plugin where to listen."""

SOCKET_NAME = "p.sock"
"""Name of the plugin's socket in FOLDER."""

GRACE_SECONDS = 2.0
"""What a plugin gets between SIGTERM and SIGKILL."""

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02


def adopt_orphans() -> None:
    """Makes descendants whose parent ends children of this process, where the system can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_launcher() -> None:
    """In the plugin's process, before the plugin: ends it should the launcher itself be killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children() -> list[int]:
    """Returns the process ids of this process's children, adopted ones included."""
    try:
        words = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in words.split()]


def wait_for_end(process: subprocess.Popen[bytes], woken: int) -> None:
    """Returns when the plugin has ended, the server is gone, or a signal says to end."""
    while process.poll() is None:
        readable, _, _ = select.select([sys.stdin.fileno(), woken], [], [], None)
        if woken in readable:
            os.read(woken, 512)
            if STOP.wanted:
                return
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 512):
            return


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the plugin and everything that descends from it."""
    signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and (process.poll() is None or living(process)):
        time.sleep(_POLL_SECONDS)  # noqa: TID251 - waits for processes, in a process of its own
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(50):
        orphans = living(process)
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)  # noqa: TID251 - waits for processes, in a process of its own


def living(process: subprocess.Popen[bytes]) -> list[int]:
    """Reaps children that have ended and returns those that have not, the plugin itself left out."""
    found = []
    for pid in children():
        if pid == process.pid:
            continue
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
        if not ended:
            found.append(pid)
    return found


def signal_group(group: int, number: int) -> None:
    """Sends a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class Stop:
    """Whether a signal told this process to end."""

    wanted = False


STOP = Stop()


def main() -> int:
    """Runs the plugin and returns its exit code."""
    folder, *command = sys.argv[1:]
    adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def stop(_number: int, _frame: object) -> None:
        STOP.wanted = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Its handler does nothing: the wake-up of `select` is the point.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        process = subprocess.Popen(  # noqa: S603 - the command is the operator's own
            command,
            env={**os.environ, ENDPOINT_VARIABLE: f"unix:{folder}/{SOCKET_NAME}"},  # noqa: TID251 - passed on
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_launcher,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        shutil.rmtree(folder, ignore_errors=True)
        return 127
    try:
        wait_for_end(process, woken)
        end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
