"""`python -m sagentry.plugins.sql`."""

from __future__ import annotations

from sagentry.plugins.sql.command import main

if __name__ == "__main__":
    main()
