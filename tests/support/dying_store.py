"""The SQL store, which dies by SIGKILL after a commit and before the answer, once.

    python -m tests.support.dying_store --database PATH --while FILE

It dies at the first commit that finds FILE, which it removes first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from sagentry.plugins.sql import StoreOptions, open_store
from sagentry.plugins.sql.command import serve_store


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--while", required=True, dest="mark", type=Path)
    options = parser.parse_args()

    def die(_works: int) -> None:
        if options.mark.exists():
            options.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    with open_store(options.database, StoreOptions(on_commit=die)) as store:
        asyncio.run(serve_store(store, None))


if __name__ == "__main__":
    main()
