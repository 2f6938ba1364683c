from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sagentry.plugins.check import ALL, Case, Level, Outcome, Result, attached, run, selected
from tests.support.broken_plugins import BROKEN, Broken
from tests.support.plain_plugin import PlainPlugin, serving_plain

LEVEL_0 = selected(ALL, level=Level.ATTACH)
EXAMPLE = Path(__file__).parents[3] / "plugins" / "python" / "examples" / "upper_preprocessor.py"

pytestmark = pytest.mark.anyio


async def judged(broken: Broken, cases: tuple[Case, ...]) -> list[Result]:
    async with (
        serving_plain(broken.make()) as address,
        attached(address, asked=broken.asked, patience=broken.patience) as session,
    ):
        return [result async for result in run(cases, session)]


async def test_every_case_of_level_0_has_a_plugin_that_fails_it() -> None:
    assert set(BROKEN) == {case.id for case in LEVEL_0}


@pytest.mark.parametrize("case", LEVEL_0, ids=lambda case: case.id)
async def test_a_plugin_that_breaks_the_rule_fails_the_case(case: Case) -> None:
    (result,) = await judged(BROKEN[case.id], (case,))

    assert result.outcome is Outcome.FAILED, result
    assert result.failure is not None


async def test_a_plugin_from_plain_stubs_passes_level_0() -> None:
    results = await judged(Broken(PlainPlugin), LEVEL_0)

    assert [result for result in results if result.outcome is Outcome.FAILED] == []
    assert sum(result.outcome is Outcome.PASSED for result in results) > 30


async def test_a_launched_example_on_the_sdk_passes_level_0() -> None:
    async with attached(f"exec:{sys.executable} {EXAMPLE}") as session:
        results = [each async for each in run(LEVEL_0, session)]

    assert {result.outcome for result in results} == {Outcome.PASSED, Outcome.UNDECLARED}


async def test_a_case_of_an_undeclared_capability_is_undeclared_and_says_which() -> None:
    (case,) = [case for case in ALL if case.id == "attach.last_messages_are_in_range"]

    (result,) = await judged(Broken(PlainPlugin), (case,))

    assert result.outcome is Outcome.UNDECLARED
    assert "STATE_VIEW_LAST_MESSAGES" in result.reason


async def test_a_plugin_without_reflection_skips_that_case_with_a_reason() -> None:
    class Bare(PlainPlugin):
        reflected = ()

    (case,) = [case for case in ALL if case.id == "attach.reflection_lists_the_contracts"]

    (result,) = await judged(Broken(Bare), (case,))

    assert result.outcome is Outcome.SKIPPED
    assert "allowed" in result.reason


def test_each_case_names_a_sentence_and_has_an_id_of_its_own() -> None:
    assert len({case.id for case in ALL}) == len(ALL)
    assert all(case.sentence.endswith(".") for case in ALL)
