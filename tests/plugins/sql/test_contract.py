"""The store under the judge: its contract tests are the judge's cases."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sagentry.plugins.check import ALL, Case, Level, Outcome, Session, attached, run, selected
from sagentry.plugins.check.methods import AGENT_PERSISTENCE, DISPLAY_MESSAGE_PERSISTENCE
from tests.support import display_faults, state_faults
from tests.support.broken_store import BrokenChannel, Fault
from tests.support.sql_store import store_target

pytestmark = pytest.mark.anyio

CASES = tuple(
    case
    for case in ALL
    if case.contract in (AGENT_PERSISTENCE, DISPLAY_MESSAGE_PERSISTENCE)
    and case.level > Level.ATTACH
)
FAULTS = {
    f"{group}.{name}": fault
    for group, faults in (
        ("agent_persistence", state_faults.FAULTS),
        ("display_message_persistence", display_faults.FAULTS),
    )
    for name, fault in faults.items()
}


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    database = tmp_path_factory.mktemp("sql") / "store.db"
    async with attached(store_target(database)) as session:
        yield session


async def test_the_store_passes_every_case_of_what_it_declares(tmp_path: Path) -> None:
    async with attached(store_target(tmp_path / "store.db")) as session:
        cases = selected(ALL, level=max(Level))
        results = [result async for result in run(cases, session)]

    wrong = [each for each in results if each.outcome in (Outcome.FAILED, Outcome.SKIPPED)]
    assert wrong == []
    passed = {each.case.id for each in results if each.outcome is Outcome.PASSED}
    assert {case.id for case in CASES if "DELETE" not in str(case.needs)} <= passed


def test_every_case_has_a_store_that_fails_it() -> None:
    assert set(FAULTS) == {case.id for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_store_that_breaks_the_rule_fails_the_case(case: Case, session: Session) -> None:
    broken = dataclasses.replace(
        session,
        channel=BrokenChannel(session.channel, FAULTS[case.id]()),  # type: ignore[arg-type]
    )

    (result,) = [each async for each in run((case,), broken)]

    assert result.outcome is Outcome.FAILED, result
    assert result.failure is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_store_behind_the_same_channel_without_a_fault_passes(
    case: Case, session: Session
) -> None:
    whole = dataclasses.replace(
        session,
        channel=BrokenChannel(session.channel, Fault()),  # type: ignore[arg-type]
    )

    (result,) = [each async for each in run((case,), whole)]

    assert result.outcome is Outcome.PASSED, result
