from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.repository import Outcome, Repository, run_tool


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty git repository."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return Repository(tmp_path)


@pytest.fixture
def contract_check(tmp_path: Path) -> Callable[[str], Outcome]:
    """Judges a contract of one service whose only RPC has the given comment."""

    def judge(comment: str) -> Outcome:
        lines = "\n".join(f"  // {line}".rstrip() for line in comment.splitlines())
        (tmp_path / "example.proto").write_text(
            f"""syntax = "proto3";
package example.v1;

enum ErrorReason {{
  ERROR_REASON_UNSPECIFIED = 0;
  ERROR_REASON_FIELD_INVALID = 1;
}}

service ExampleService {{
{lines}
  rpc Get(GetRequest) returns (GetResponse);
}}

message GetRequest {{}}
message GetResponse {{}}
""",
            encoding="utf-8",
        )
        return run_tool("check_contract", "--protos", tmp_path)

    return judge
