"""The verdict, for people (text), for programs (JSON) and for continuous integration (JUnit)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from xml.etree import ElementTree as ET

from sagentry.plugins.check.case import Case, Outcome
from sagentry.plugins.check.runner import Result
from sagentry.plugins.check.session import Session

_MARKS = {
    Outcome.PASSED: "pass",
    Outcome.FAILED: "FAIL",
    Outcome.SKIPPED: "skip",
    Outcome.UNDECLARED: "n/a ",
}


def summary_of(results: Sequence[Result]) -> dict[str, int]:
    """Returns how many cases had each outcome, by the outcome's name."""
    return {
        outcome.value: sum(result.outcome is outcome for result in results) for outcome in Outcome
    }


def text_report(session: Session, results: Sequence[Result]) -> str:
    """Returns the verdict for the plugin's author: each failure with all that mends it."""
    info = session.info
    lines = [
        f"{info.name} {info.version} serves {', '.join(session.services) or 'no contract'}",
        "",
        *(f"{_MARKS[result.outcome]}  {result.case.id}{_why(result)}" for result in results),
        "",
    ]
    for result in results:
        if result.outcome is Outcome.FAILED:
            lines += [*_explained(result), ""]
    counts = ", ".join(f"{count} {name}" for name, count in summary_of(results).items())
    return "\n".join([*lines, counts])


def json_report(_session: Session, results: Sequence[Result]) -> str:
    """Returns `{"summary": {outcome: count}, "cases": [{id, contract, level, outcome, reason}]}`."""
    cases = [
        {
            "id": result.case.id,
            "contract": result.case.contract,
            "level": int(result.case.level),
            "outcome": result.outcome.value,
            "reason": result.reason,
        }
        for result in results
    ]
    return json.dumps({"summary": summary_of(results), "cases": cases}, indent=2)


def junit_report(session: Session, results: Sequence[Result]) -> str:
    """Returns JUnit XML: one suite; skipped and undeclared cases are both `skipped`."""
    summary = summary_of(results)
    suite = ET.Element(
        "testsuite",
        name=f"sagentry plugin check {session.info.name}",
        tests=str(len(results)),
        failures=str(summary["failed"]),
        errors="0",
        skipped=str(summary["skipped"] + summary["undeclared"]),
    )
    for result in results:
        element = ET.SubElement(
            suite, "testcase", classname=result.case.contract, name=result.case.id
        )
        if result.outcome is Outcome.FAILED:
            failure = ET.SubElement(element, "failure", message=_xml_text(result.reason))
            failure.text = _xml_text("\n".join(_explained(result)))
        elif result.outcome is not Outcome.PASSED:
            ET.SubElement(element, "skipped", message=_xml_text(result.reason))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def case_list(cases: Sequence[Case]) -> str:
    """Returns one line per case: id, level, contract, sentence."""
    return "\n".join(
        f"{case.id}  L{int(case.level)}  {case.contract.rpartition('.')[2]}  {case.sentence}"
        for case in cases
    )


FORMATS: Mapping[str, Callable[[Session, Sequence[Result]], str]] = {
    "text": text_report,
    "json": json_report,
    "junit": junit_report,
}
"""Name of the format → its function."""


def _why(result: Result) -> str:
    is_open = result.outcome in (Outcome.SKIPPED, Outcome.UNDECLARED)
    return f"  ({result.reason})" if is_open else ""


def _explained(result: Result) -> list[str]:
    lines = [f"FAIL  {result.case.id}", f"  contract  {result.case.sentence}"]
    if result.failure is None:
        return [*lines, f"  reason    {result.reason}"]
    return [
        *lines,
        f"  sent      {result.failure.sent}",
        f"  expected  {result.failure.expected}",
        f"  got       {result.failure.got}",
    ]


def _xml_text(text: str) -> str:
    """Returns the text without the control characters that XML cannot hold at all."""
    return "".join(
        char if char >= " " or char in "\t\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
