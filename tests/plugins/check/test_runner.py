from __future__ import annotations

import asyncio
import json
from xml.etree import ElementTree as ET

import grpc.aio
import pytest

from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.plugins.check import (
    ALL,
    FORMATS,
    Cases,
    Level,
    Outcome,
    Result,
    Session,
    known_failing,
    run,
    selected,
)
from sagentry.plugins.check.answer import CheckFailedError, SkippedError
from sagentry.plugins.check.methods import AGENT_PERSISTENCE, MESSAGE_PREPROCESSOR, PLUGIN

pytestmark = pytest.mark.anyio

cases = Cases("sample", contract=PLUGIN, level=Level.ATTACH)


@cases.case("It holds.")
async def holds(_session: Session) -> None:
    pass


@cases.case("It does not hold.")
async def breaks(_session: Session) -> None:
    raise CheckFailedError(sent="Ping\x00", expected="<pong>", got="nothing")


@cases.case("It cannot be told.")
async def cannot_tell(_session: Session) -> None:
    raise SkippedError("no way to see it")


@cases.case("It never ends.")
async def hangs(_session: Session) -> None:
    await asyncio.Event().wait()


@cases.case("It is of another contract.", contract=AGENT_PERSISTENCE, level=Level.REQUIRED)
async def is_elsewhere(_session: Session) -> None:
    pass


async def results(*names: str, known: frozenset[str] = frozenset()) -> list[Result]:
    info = plugin_pb2.GetPluginInfoResponse(name="com.example.sample", version="1")
    info.contracts.add(service=MESSAGE_PREPROCESSOR)
    chosen = [case for case in cases.all() if case.id.partition(".")[2] in names]
    async with grpc.aio.insecure_channel("unix:/nowhere") as channel:
        session = Session(channel=channel, info=info, patience=0.001)
        return [each async for each in run(chosen, session, known_failing=known)]


async def report(form: str, *names: str) -> str:
    judged = await results(*names)
    info = plugin_pb2.GetPluginInfoResponse(name="com.example.sample", version="1")
    async with grpc.aio.insecure_channel("unix:/nowhere") as channel:
        return FORMATS[form](Session(channel=channel, info=info), judged)


async def test_each_case_has_one_outcome_and_all_but_passes_have_a_reason() -> None:
    judged = await results("holds", "breaks", "cannot_tell", "is_elsewhere")

    assert [(result.outcome, bool(result.reason)) for result in judged] == [
        (Outcome.PASSED, False),
        (Outcome.FAILED, True),
        (Outcome.SKIPPED, True),
        (Outcome.UNDECLARED, True),
    ]


async def test_a_case_that_does_not_end_fails_in_its_time() -> None:
    (result,) = await results("hangs")

    assert result.outcome is Outcome.FAILED
    assert "not done within" in result.reason


async def test_a_known_failure_is_skipped_with_its_reason() -> None:
    (result,) = await results("breaks", known=frozenset({"sample.breaks"}))

    assert result.outcome is Outcome.SKIPPED
    assert "known to fail: expected <pong>" in result.reason


async def test_a_known_failure_that_passes_fails() -> None:
    (result,) = await results("holds", known=frozenset({"sample.holds"}))

    assert result.outcome is Outcome.FAILED
    assert "take it out" in result.reason


def test_a_list_of_known_failures_has_comments_and_knows_its_cases() -> None:
    assert known_failing(f"# all\n\n{ALL[0].id}  # later\n") == {ALL[0].id}
    with pytest.raises(ValueError, match=r"attach\.nothing"):
        known_failing("attach.nothing")


def test_cases_are_selected_by_level_and_contract() -> None:
    every = cases.all()

    assert "sample.is_elsewhere" not in {case.id for case in selected(every, level=Level.ATTACH)}
    asked = selected(every, level=Level.FAULTS, asked=frozenset({MESSAGE_PREPROCESSOR}))
    assert {case.contract for case in asked} == {PLUGIN}


def test_two_cases_cannot_share_an_id() -> None:
    with pytest.raises(ValueError, match="taken"):
        cases.case("Again.")(holds)


async def test_the_json_report_has_exactly_the_promised_members() -> None:
    verdict = json.loads(await report("json", "holds", "breaks", "cannot_tell", "is_elsewhere"))

    assert verdict["summary"] == {"passed": 1, "failed": 1, "skipped": 1, "undeclared": 1}
    assert set(verdict) == {"summary", "cases"}
    assert verdict["cases"][1] == {
        "id": "sample.breaks",
        "contract": PLUGIN,
        "level": 0,
        "outcome": "failed",
        "reason": "expected <pong>, got nothing (sent Ping\x00)",
    }


async def test_the_text_report_explains_each_failure() -> None:
    text = await report("text", "holds", "breaks")

    for part in ("It does not hold.", "Ping", "<pong>", "nothing", "1 passed, 1 failed"):
        assert part in text


async def test_the_junit_report_is_xml_whatever_a_plugin_says() -> None:
    suite = ET.fromstring(await report("junit", "holds", "breaks", "cannot_tell"))  # noqa: S314  our own

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite.find("testcase/failure") is not None
