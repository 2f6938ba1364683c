"""Refuses an RPC comment without a proper error table.

Every RPC comment has a line `Errors:` and below it a Markdown table whose first column is
`CODE / REASON` (or `CODE` alone, for what the gRPC library itself answers), with at least one row. A reason
is a value of `ErrorReason`, without its prefix.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from contract import FileDoc, load

REASON_ENUM = "ErrorReason"
REASON_PREFIX = "ERROR_REASON_"
COLUMNS = 3
CODES = frozenset(
    {
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    }
)
FIRST_CELL = re.compile(r"`([A-Z_]+)(?: / ([A-Z0-9_]+))?`")
"""One code, or one code and one reason, as code."""


def table(comment: str) -> list[list[str]] | None:
    """The cells of the table below `Errors:`, header included; nothing if there is no such line."""
    lines = comment.splitlines()
    if "Errors:" not in lines:
        return None
    rows = []
    for line in lines[lines.index("Errors:") + 1 :]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows.append([cell.strip() for cell in cells])
        elif line.strip() or rows:
            break
    return rows


def problems_of_row(row: Sequence[str], reasons: frozenset[str]) -> Iterator[str]:
    if len(row) != COLUMNS or not all(row):
        yield f"a row of the error table needs {COLUMNS} cells with text: {' | '.join(row)}"
        return
    cell = FIRST_CELL.fullmatch(row[0])
    if cell is None:
        yield f"not of the form `CODE / REASON` or `CODE`: {row[0]}"
        return
    code, reason = cell.groups()
    if code not in CODES:
        yield f"{code} is not a status code of gRPC"
    if reason is not None and reason not in reasons:
        yield f"{REASON_PREFIX}{reason} is not in {REASON_ENUM}"


def problems_of_comment(comment: str, reasons: frozenset[str]) -> Iterator[str]:
    rows = table(comment)
    if rows is None:
        yield "the comment has no line `Errors:`"
        return
    header_and_rule = 2
    if len(rows) <= header_and_rule or set("".join(rows[1])) - set("-: "):
        yield "no error table with a header and at least one row follows `Errors:`"
        return
    for row in rows[header_and_rule:]:
        yield from problems_of_row(row, reasons)


def reasons_of(files: Sequence[FileDoc]) -> frozenset[str]:
    names = [
        value.name.removeprefix(REASON_PREFIX)
        for file in files
        for enum in file.enums
        if enum.name == REASON_ENUM
        for value in enum.values
        if value.number != 0
    ]
    return frozenset(names)


def problems(files: Sequence[FileDoc]) -> list[str]:
    reasons = reasons_of(files)
    return [
        f"{file.path}: {service.name}.{method.name}: {problem}"
        for file in files
        for service in file.services
        for method in service.methods
        for problem in problems_of_comment(method.comment, reasons)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(__file__).resolve().parent.parent / "protos"
    parser.add_argument("--protos", type=Path, default=default)
    lines = problems(load(parser.parse_args().protos))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
