"""Runs `sagentry serve` with a stand-in for the plugin host; for tests of the process."""

from __future__ import annotations

import sys
from types import ModuleType

from tests.support.fake_plugins import FakePlugins

host = ModuleType("sagentry.server.plugin.host")
host.PluginHost = lambda *_args, **_options: FakePlugins()  # type: ignore[attr-defined]
sys.modules[host.__name__] = host

if __name__ == "__main__":
    from sagentry.server.command import serve

    serve(prog_name="sagentry serve")
