"""The SQL store: keeps agent state and display messages in one relational database.

`python -m sagentry.plugins.sql --database store.db` serves it. `docs/plugins/sql_store.md` describes the
tables and what is guaranteed.
"""

from __future__ import annotations

from sagentry.plugins.sql.database import DatabaseError
from sagentry.plugins.sql.servicer import SqlAgentPersistence, SqlDisplayMessagePersistence
from sagentry.plugins.sql.store import Store, StoreOptions, open_store

__all__ = [
    "DatabaseError",
    "SqlAgentPersistence",
    "SqlDisplayMessagePersistence",
    "Store",
    "StoreOptions",
    "open_store",
]
