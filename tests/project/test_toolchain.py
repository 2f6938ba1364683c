from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import toolchain


def test_missing_tool_skips_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAGENTRY_REQUIRE", raising=False)

    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not installed"):
        toolchain.require_tool("no-such-tool")


@pytest.mark.parametrize("required", ["all", "go,no-such-tool"])
def test_missing_tool_that_is_required_fails(
    monkeypatch: pytest.MonkeyPatch, required: str
) -> None:
    monkeypatch.setenv("SAGENTRY_REQUIRE", required)

    with pytest.raises(pytest.fail.Exception, match="no-such-tool is not installed"):
        toolchain.require_tool("no-such-tool")


def test_tool_that_does_not_tell_its_version_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shim = tmp_path / "broken-shim"
    shim.write_text("#!/bin/sh\necho 'no version is set' >&2\nexit 1\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert toolchain.missing("broken-shim") == (
        "broken-shim is installed and does not work here: no version is set"
    )
