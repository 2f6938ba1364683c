"""Plugin hosts and plugin processes for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from sagentry.server.domain.plugins import PluginState, PluginView
from sagentry.server.plugin.host import PluginHost

PLAIN = "tests.support.plugins.plain_plugin"


@dataclass(frozen=True)
class Configured:
    """A plugin as the configuration has it."""

    target: str
    contracts: tuple[str, ...] = ("agent_persistence",)


def launched(*faults: str, pid_file: Path | None = None) -> str:
    """A target that launches the plain plugin."""
    words = [sys.executable, "-m", PLAIN]
    for fault in faults:
        words += ["--fault", fault]
    if pid_file is not None:
        words += ["--pid-file", str(pid_file)]
    return "exec:" + shlex.join(words)


@contextlib.asynccontextmanager
async def hosting(**plugins: str | Configured) -> AsyncIterator[PluginHost]:
    """Runs a host with plugins by name."""
    folder = Path(tempfile.mkdtemp(prefix="sgt-"))
    settings = {n: Configured(p) if isinstance(p, str) else p for n, p in plugins.items()}
    host = PluginHost(settings, runtime_dir=folder, host_version="0")
    await host.start()
    try:
        yield host
    finally:
        async with asyncio.timeout(20):
            await host.stop()
        left = os.listdir(folder)  # noqa: PTH208 - a folder of a few names
        shutil.rmtree(folder)
        assert left == [], "a socket folder was left behind"


async def until(host: PluginHost, condition: Callable[[], bool]) -> None:
    """Returns when the condition holds after some change of a plugin."""
    changed = asyncio.Event()
    unsubscribe = host.subscribe(changed.set)
    try:
        async with asyncio.timeout(30):
            while not condition():
                changed.clear()
                await changed.wait()
    finally:
        unsubscribe()


async def problem_of(host: PluginHost, name: str) -> PluginView:
    """Returns the plugin's view once something is known of it."""
    await until(host, lambda: host.get_plugin(name).problem != "not attached yet")
    return host.get_plugin(name)


async def attached(host: PluginHost, name: str) -> PluginView:
    """Returns the plugin's view once it is attached."""
    await until(host, lambda: host.get_plugin(name).state is PluginState.ATTACHED)
    return host.get_plugin(name)


@dataclass
class Running:
    """A plugin process that a test runs by itself."""

    process: asyncio.subprocess.Process
    port: int

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@contextlib.asynccontextmanager
async def plain_plugin(endpoint: str, *faults: str) -> AsyncIterator[Running]:
    """Runs the plain plugin at an endpoint."""
    words = ["--endpoint", endpoint]
    for fault in faults:
        words += ["--fault", fault]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", PLAIN, *words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        yield Running(process, int(line.split()[1]))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def until_dead(pids: list[int]) -> None:
    """Returns when none of the processes runs: the system tells nobody but their parent."""
    async with asyncio.timeout(20):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_gone(folder: Path) -> None:
    """Returns when the folder is empty: another process removes what is in it."""
    async with asyncio.timeout(20):
        while os.listdir(folder):  # noqa: ASYNC110, PTH208
            await asyncio.sleep(0.05)


def pids_in(file: Path) -> list[int]:
    """The process ids that a plugin wrote down."""
    return [int(word) for word in file.read_text(encoding="ascii").split()]
