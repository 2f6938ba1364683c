"""The cases, by group. A new module is listed here."""

from __future__ import annotations

from sagentry.plugins.check.case import Case
from sagentry.plugins.check.cases import (
    agent_persistence,
    agent_persistence_safety,
    attach,
    calls,
    display_lists,
    display_message_persistence,
    display_safety,
)

ALL: tuple[Case, ...] = (
    *attach.cases.all(),
    *calls.cases.all(),
    *agent_persistence.cases.all(),
    *agent_persistence_safety.cases.all(),
    *display_message_persistence.cases.all(),
    *display_lists.cases.all(),
    *display_safety.cases.all(),
)
"""Every case, in the order in which they run."""
