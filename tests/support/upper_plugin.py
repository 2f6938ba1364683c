"""The example plugin: how it is configured, and run in a process of its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.repository import ROOT
from tests.support.serve import end

EXAMPLE = ROOT / "plugins" / "python" / "examples" / "upper_preprocessor.py"


def launched(pid_file: Path | None = None) -> str:
    """A target that launches the plugin, which writes down its process id."""
    command = shlex.join([sys.executable, str(EXAMPLE)])
    if pid_file is None:
        return f"exec:{command}"
    script = f"echo $$ > {shlex.quote(str(pid_file))}; exec {command}"
    return f"exec:sh -c {shlex.quote(script)}"


def config_with(folder: Path, *, contract: str = "message_preprocessor", **targets: str) -> str:
    """Writes settings with plugins at targets; returns the file."""
    plugins = {name: {"target": to, "contracts": [contract]} for name, to in targets.items()}
    file = folder / "sagentry.yaml"
    file.write_text(json.dumps({"plugins": plugins}), encoding="utf-8")  # JSON is YAML
    return str(file)


@contextmanager
def upper_plugin(
    folder: Path, endpoint: str = "127.0.0.1:0"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs the plugin at an endpoint; yields its process and its address."""
    process = subprocess.Popen(
        [sys.executable, EXAMPLE],
        cwd=folder,
        env={"HOME": str(folder), "SAGENTRY_PLUGIN_ENDPOINT": endpoint},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r" on (\S+)$", line)
        assert address is not None, line
        yield process, address[1]
    finally:
        end(process)
