"""Runs `sagentry serve` as `python -m sagentry.server`."""

from __future__ import annotations

from sagentry.server.command import serve

if __name__ == "__main__":
    serve(prog_name="sagentry serve")
