"""The judge of plugins: any language, needs only an address.

    async with attached("unix:/run/p.sock") as session:
        async for result in run(selected(ALL, level=Level.CONCURRENCY), session):
            ...

On the command line: `sagentry plugin check --target unix:/run/p.sock`.
"""

from __future__ import annotations

from sagentry.plugins.check.case import Case, Cases, Level, Outcome
from sagentry.plugins.check.cases import ALL
from sagentry.plugins.check.report import FORMATS, case_list, summary_of
from sagentry.plugins.check.runner import Result, run, selected
from sagentry.plugins.check.selection import full_names, known_failing
from sagentry.plugins.check.session import Session
from sagentry.plugins.check.target import TargetError, attached

__all__ = [
    "ALL",
    "FORMATS",
    "Case",
    "Cases",
    "Level",
    "Outcome",
    "Result",
    "Session",
    "TargetError",
    "attached",
    "case_list",
    "full_names",
    "known_failing",
    "run",
    "selected",
    "summary_of",
]
