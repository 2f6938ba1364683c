"""`python -m sagentry.plugins.mention`."""

from __future__ import annotations

from sagentry.plugins.mention.command import main

if __name__ == "__main__":
    main()
