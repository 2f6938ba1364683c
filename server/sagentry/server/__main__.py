"""Runs `sagentry serve` as `python -m sagentry.server`."""

from __future__ import annotations

import os

if __name__ == "__main__":
    # For the gRPC library, before its import: without it its own notes are among the server's log lines.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # noqa: TID251
    from sagentry.server.command import serve

    serve(prog_name="sagentry serve")
