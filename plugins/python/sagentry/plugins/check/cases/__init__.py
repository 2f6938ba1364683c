"""The cases, by group. A new module is listed here."""

from __future__ import annotations

from sagentry.plugins.check.case import Case
from sagentry.plugins.check.cases import attach, calls

ALL: tuple[Case, ...] = (*attach.cases.all(), *calls.cases.all())
"""Every case, in the order in which they run."""
