from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from sagentry.cli.main import EXTRAS, missing_extra

ROOT = Path(__file__).parents[3]

MODULES = {"prompt-toolkit": "prompt_toolkit", "langchain-core": "langchain_core", "pyyaml": "yaml"}
"""Where the name of the module differs from that of the distribution."""

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv[1:] = {arguments!r}
from sagentry.cli import main
main.find_spec = lambda name: None if name in {missing!r} else object()
main.main()
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )


def sagentry_without(*missing: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return python(WITHOUT.format(missing=missing, arguments=arguments))


def test_help_lists_the_commands_without_importing_them() -> None:
    done = python(
        "import sys; sys.argv[1:] = ['--help']\n"
        "from sagentry.cli.main import main\n"
        "try: main()\n"
        "finally: print([m for m in sys.modules if m.startswith(('sagentry.', 'grpc', 'rich'))])"
    )

    assert re.search(r"^  plugin  +Show and judge plugins", done.stdout, re.MULTILINE)
    assert re.search(r"^  serve  +Run the agent server", done.stdout, re.MULTILINE)
    imported = done.stdout.splitlines()[-1]
    assert "sagentry.cli.commands" in imported
    assert not re.search(r"sagentry\.(plugins|server|api)|grpc|rich", imported)


def test_the_version_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sagentry.cli.main", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert re.fullmatch(r"sagentry \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("pydantic", ["serve"], "server"),
        ("click", ["--help"], "cli"),
        ("rich", ["plugin", "list"], "cli"),
    ],
)
def test_a_missing_extra_is_one_line_and_exit_code_2(
    missing: str, arguments: list[str], extra: str
) -> None:
    done = sagentry_without(missing, arguments=arguments)

    assert done.returncode == 2
    assert done.stderr == (
        f"sagentry: this command needs the extra '{extra}': pip install 'sagentry[{extra}]'\n"
    )


def test_a_missing_module_of_our_own_is_not_taken_for_a_missing_extra() -> None:
    done = sagentry_without("sagentry.plugins", arguments=["plugin", "list"])

    assert missing_extra(ModuleNotFoundError(name="sagentry.plugins.listing")) is None
    assert done.returncode != 2 or "extra" not in done.stderr


def test_a_missing_part_of_an_installed_module_is_a_fault() -> None:
    assert find_spec("click") is not None

    assert missing_extra(ModuleNotFoundError(name="click.no_such_part")) is None


@pytest.mark.parametrize(("given", "wanted"), [(None, "ERROR"), ("DEBUG", "DEBUG")])
def test_the_core_of_grpc_prints_errors_alone_unless_told_otherwise(
    given: str | None, wanted: str
) -> None:
    """Otherwise `plugin check` shows now and then that the plugin it has ended said goodbye."""
    done = python(
        f"""
import os, sys
os.environ.pop("GRPC_VERBOSITY", None)
if {given!r}:
    os.environ["GRPC_VERBOSITY"] = {given!r}
sys.argv[1:] = ["--version"]
from sagentry.cli.main import main
try:
    main()
finally:
    print(os.environ["GRPC_VERBOSITY"], "grpc" in sys.modules)
"""
    )

    assert done.stdout.splitlines()[-1] == f"{wanted} False"


def test_an_unknown_command_is_wrong_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sagentry.cli.main", "no-such-command"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "No such command 'no-such-command'" in done.stderr


def test_every_module_that_an_extra_brings_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0].lower()
        for extra in ("cli", "server")
        for requirement in project["optional-dependencies"][extra]
    }

    assert {MODULES.get(name, name) for name in names} == set(EXTRAS)
