"""Runs cases against one plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from sagentry.plugins.check.answer import CheckFailedError, SkippedError
from sagentry.plugins.check.case import Case, Level, Outcome
from sagentry.plugins.check.methods import PLUGIN
from sagentry.plugins.check.session import Session

CASE_SECONDS = 60.0
"""How long one case may take; single calls have the deadlines of the contract."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case.

    Attributes:
        case: The case.
        outcome: What came of it.
        reason: Why, in one line; empty if it passed.
        failure: What was sent, expected and got, if it failed by that.
    """

    case: Case
    outcome: Outcome
    reason: str = ""
    failure: CheckFailedError | None = None


def selected(
    cases: Iterable[Case], *, level: Level, asked: frozenset[str] = frozenset()
) -> tuple[Case, ...]:
    """Returns the cases to run, in their order.

    Args:
        cases: All cases.
        level: The highest level to run.
        asked: Full names of contracts; empty means all. Cases of PluginService always run:
            everything else rests on them.
    """
    return tuple(
        case
        for case in cases
        if case.level <= level and (not asked or case.contract in asked or case.contract == PLUGIN)
    )


async def run(
    cases: Sequence[Case], session: Session, *, known_failing: frozenset[str] = frozenset()
) -> AsyncIterator[Result]:
    """Runs the cases one after the other and yields each result when it is there.

    A case never ends the run: a plugin that dies fails every case from there on.

    Args:
        cases: What to run.
        session: The plugin.
        known_failing: Ids of cases that are expected to fail. They run all the same: one that
            fails is skipped with its reason, one that passes fails, so that the list stays true.
    """
    for case in cases:
        result = await _judged(case, session)
        if case.id in known_failing:
            result = _as_known(result)
        yield result


async def _judged(case: Case, session: Session) -> Result:
    if case.contract not in (PLUGIN, *session.services):
        return Result(case, Outcome.UNDECLARED, f"the plugin does not declare {case.contract}")
    if missing := [name for name in case.needs if name not in session.capabilities]:
        reason = f"the plugin does not declare {', '.join(missing)}"
        return Result(case, Outcome.UNDECLARED, reason)
    seconds = CASE_SECONDS * session.patience
    try:
        async with asyncio.timeout(seconds):
            await case.body(session)
    except CheckFailedError as error:
        reason = f"expected {error.expected}, got {error.got} (sent {error.sent})"
        return Result(case, Outcome.FAILED, reason, error)
    except SkippedError as error:
        return Result(case, Outcome.SKIPPED, str(error))
    except TimeoutError:
        return Result(case, Outcome.FAILED, f"not done within {seconds:g} s")
    return Result(case, Outcome.PASSED)


def _as_known(result: Result) -> Result:
    match result.outcome:
        case Outcome.FAILED:
            reason = f"known to fail: {result.reason}"
            return replace(result, outcome=Outcome.SKIPPED, reason=reason, failure=None)
        case Outcome.PASSED:
            reason = "it is in the list of known failures, but it passes: take it out"
            return replace(result, outcome=Outcome.FAILED, reason=reason)
        case _:
            return result
