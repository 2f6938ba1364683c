"""A program that hosts one launched plugin until it is killed; prints `attached` when it is."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sagentry.server.plugin.host import PluginHost
from tests.support.hosts import Configured, launched


async def main(pid_file: Path, runtime_dir: Path, *faults: str) -> None:
    target = launched(*faults, pid_file=pid_file)
    host = PluginHost({"store": Configured(target)}, runtime_dir=runtime_dir, host_version="0")
    await host.start()
    await host.wait_attached("store")
    sys.stdout.write("attached\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
