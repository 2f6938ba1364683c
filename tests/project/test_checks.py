"""The checks of `make check` catch what they are for, in a repository made for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.support.repository import Outcome, Repository

LONG_FILE = "x = 1\n" * 501
LONG_FUNCTION = "def long() -> None:\n" + "    print()\n" * 60
# In parts, since the check reads this file too.
INDEX_HOST = "files.python" + "hosted.org"
ALL_FINE = Outcome(0, "")


def test_file_over_the_limit_is_refused(repository: Repository) -> None:
    repository.write("server/long.py", LONG_FILE)

    outcome = repository.check("check_sizes")

    assert outcome == Outcome(1, "server/long.py: 501 lines, 500 are allowed\n")


def test_function_over_the_limit_is_refused_by_name(repository: Repository) -> None:
    repository.write("server/a.py", "class Outer:\n" + textwrap.indent(LONG_FUNCTION, "    "))

    outcome = repository.check("check_sizes")

    assert outcome == Outcome(1, "server/a.py::Outer.long: 61 lines, 60 are allowed\n")


def test_exempt_file_with_a_reason_is_accepted(repository: Repository) -> None:
    repository.write("server/long.py", LONG_FILE)
    repository.write("tools/size_exemptions.txt", "server/long.py one table, read as a whole\n")

    assert repository.check("check_sizes") == ALL_FINE


def test_exemption_without_a_reason_is_refused(repository: Repository) -> None:
    repository.write("server/long.py", LONG_FILE)
    repository.write("tools/size_exemptions.txt", "server/long.py\n")

    outcome = repository.check("check_sizes")

    assert outcome.code == 1
    assert "server/long.py is exempt without a reason" in outcome.output


def test_exemption_that_is_no_longer_needed_is_refused(repository: Repository) -> None:
    repository.write("server/short.py", "x = 1\n")
    repository.write("tools/size_exemptions.txt", "server/short.py it was long once\n")

    outcome = repository.check("check_sizes")

    assert outcome.code == 1
    assert "server/short.py needs no exemption any more" in outcome.output


def test_generated_and_ignored_files_have_no_limit(repository: Repository) -> None:
    repository.write("protos/a_pb2.py", LONG_FILE)
    repository.write("protos/a.proto", LONG_FILE)
    repository.write(".gitignore", "/build/\n")
    repository.write("build/long.py", LONG_FILE)

    assert repository.check("check_sizes") == ALL_FINE


@pytest.mark.parametrize(
    "line",
    [
        f"six @ https://{INDEX_HOST}/packages/six.whl",
        f"mirror = {INDEX_HOST.upper()}",
        f"host: cdn.{INDEX_HOST}:443",
    ],
)
def test_registry_host_is_refused_wherever_it_stands(repository: Repository, line: str) -> None:
    repository.write("docs/install.md", f"first line\n{line}\n")

    outcome = repository.check("check_addresses")

    assert outcome.code == 1
    assert outcome.output.startswith("docs/install.md:2: names the registry host ")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("requirements.lock", "--extra-index-url packages.example"),
        ("requirements-proto.lock", "six @ https://packages.example/six.whl"),
        ("clients/package-lock.json", '"resolved": "packages.example/left-pad.tgz",'),
    ],
)
def test_lock_with_an_address_is_refused(repository: Repository, file: str, line: str) -> None:
    repository.write(file, f"{line}\n")

    outcome = repository.check("check_addresses")

    assert outcome == Outcome(1, f"{file}:1: a lock with an address or an index option\n")


@pytest.mark.parametrize(
    "path", ["/home" + "/ada/sagentry", "/root" + "/.cache", "/Users" + "/ada"]
)
def test_path_of_one_machine_is_refused(repository: Repository, path: str) -> None:
    repository.write("settings.yaml", f"folder: {path}\n")

    outcome = repository.check("check_addresses")

    assert outcome.code == 1
    assert "names a path of one machine" in outcome.output


def test_ordinary_addresses_and_paths_are_accepted(repository: Repository) -> None:
    repository.write(
        "docs/a.md", "See https://grpc.io/docs/home/ and /var/lib/sagentry, plugins/root/a.\n"
    )
    repository.write("go.mod", "require google.golang.org/grpc v1.75.0\n")

    assert repository.check("check_addresses") == ALL_FINE


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        (
            "server/sagentry/server/domain/ids.py",
            "import grpc",
            "the domain is the standard library",
        ),
        (
            "server/sagentry/server/agent/a.py",
            "from sqlalchemy import text",
            "ports, not techniques",
        ),
        (
            "server/sagentry/server/agent/a.py",
            "from sagentry.api.type.v1 import scope_pb2",
            "ports, not techniques",
        ),
        (
            "server/sagentry/server/agent/a.py",
            "def f():\n    from sagentry.server import rpc",
            "ports, not techniques",
        ),
        (
            "server/sagentry/server/rpc/a.py",
            "from langchain_core.messages import AIMessage",
            "only the model adapters know langchain",
        ),
        (
            "server/sagentry/server/settings.py",
            "from google.protobuf import message",
            "only plugin/ and rpc/ see protobuf",
        ),
        (
            "server/sagentry/server/rpc/a.py",
            "from ..plugin import host",
            "plugin/ and rpc/ do not know each other",
        ),
        (
            "plugins/python/sagentry/plugins/sdk/serve.py",
            "from sagentry.server import errors",
            "share nothing but the contract",
        ),
        (
            "plugins/python/sagentry/plugins/sdk/serve.py",
            "import importlib\nimportlib.import_module('click')",
            "the base works without any extra",
        ),
        (
            "clients/python/sagentry/cli/main.py",
            "from sagentry.server.command import serve",
            "other commands come by entry point",
        ),
    ],
)
def test_import_against_the_architecture_is_refused(
    repository: Repository, path: str, text: str, why: str
) -> None:
    repository.write(path, f"{text}\n")

    outcome = repository.check("check_imports")

    assert outcome.code == 1
    assert why in outcome.output
    assert path in outcome.output


def test_imports_that_follow_the_architecture_are_accepted(repository: Repository) -> None:
    repository.write(
        "server/sagentry/server/rpc/servicer.py",
        "import grpc\nfrom sagentry.api.type.v1 import scope_pb2\nfrom sagentry.server import ports\n",
    )
    repository.write(
        "server/sagentry/server/model/a.py", "from langchain_core.messages import AIMessage\n"
    )
    repository.write(
        "clients/python/sagentry/cli/main.py", "import click\nfrom sagentry.client import Client\n"
    )

    assert repository.check("check_imports") == ALL_FINE


TABLE_HEAD = (
    "Gets it.\n\nErrors:\n\n| Code / reason | When | What the caller does |\n| --- | --- | --- |\n"
)


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("Gets it.", "the comment has no line `Errors:`"),
        (
            "Gets it.\n\nErrors:\n\nnone that I know of",
            "no error table with a header and at least one row",
        ),
        (TABLE_HEAD, "no error table with a header and at least one row"),
        (
            TABLE_HEAD + "| `NOT_FOUND / UNHEARD_OF` | x | y |",
            "ERROR_REASON_UNHEARD_OF is not in ErrorReason",
        ),
        (
            TABLE_HEAD + "| `MISSING / FIELD_INVALID` | x | y |",
            "MISSING is not a status code of gRPC",
        ),
        (TABLE_HEAD + "| NOT_FOUND | x | y |", "not of the form `CODE / REASON` or `CODE`"),
        (TABLE_HEAD + "| `NOT_FOUND` | x | |", "a row of the error table needs 3 cells with text"),
    ],
)
def test_rpc_comment_without_a_proper_error_table_is_refused(
    contract_check: Callable[[str], Outcome], comment: str, problem: str
) -> None:
    outcome = contract_check(comment)

    assert outcome.code == 1
    assert outcome.output.startswith(f"example.proto: ExampleService.Get: {problem}")


def test_rpc_comment_with_a_proper_error_table_is_accepted(
    contract_check: Callable[[str], Outcome],
) -> None:
    rows = "| `INVALID_ARGUMENT / FIELD_INVALID` | a \\| b | y |\n| `DEADLINE_EXCEEDED` | x | y |"

    assert contract_check(TABLE_HEAD + rows) == ALL_FINE
