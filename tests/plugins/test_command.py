from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from sagentry.api.admin.v1 import admin_service_pb2 as admin_pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as admin_grpc

EXAMPLE = Path(__file__).parents[2] / "plugins" / "python" / "examples" / "upper_preprocessor.py"
TARGET = f"exec:{sys.executable} {EXAMPLE}"

BROKEN = """
from sagentry.plugins.sdk import MessagePreprocessor, serve
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb

class Wrong(MessagePreprocessor):
    def PreprocessMessage(self, request, call): ...

serve(Wrong(), name="com.example.wrong", version="1", capabilities=[
    pb.MessagePreprocessorCapabilities(capabilities=[3], last_messages=0)])
"""


def sagentry(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sagentry.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.fixture
def broken(tmp_path: Path) -> str:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    return f"exec:{sys.executable} {script}"


def test_a_good_plugin_passes_with_exit_code_0() -> None:
    done = sagentry("plugin", "check", "--target", TARGET, "--level", "0")

    assert (done.returncode, done.stderr) == (0, "")
    assert " 0 failed" in done.stdout


def test_a_failing_plugin_has_exit_code_1_and_the_case_is_in_the_json(broken: str) -> None:
    done = sagentry("plugin", "check", "--target", broken, "--format", "json")

    assert done.returncode == 1
    verdict = json.loads(done.stdout)
    failed = [case["id"] for case in verdict["cases"] if case["outcome"] == "failed"]
    assert failed == ["attach.last_messages_are_in_range"]
    assert verdict["summary"]["failed"] == 1


def test_a_known_failure_does_not_fail_the_check(broken: str, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("attach.last_messages_are_in_range # soon\n")

    done = sagentry("plugin", "check", "--target", broken, "--known-failing", known)

    assert done.returncode == 0, done.stdout


def test_a_contract_that_the_plugin_lacks_fails() -> None:
    done = sagentry("plugin", "check", "--target", TARGET, "--contract", "AgentPersistenceService")

    assert done.returncode == 1
    assert "FAIL  attach.asked_contracts_are_declared" in done.stdout


def test_what_cannot_be_attached_has_exit_code_2_and_one_line(tmp_path: Path) -> None:
    targets = [f"unix:{tmp_path}/none", "exec:false", "exec:no-such-command", "exec:"]

    ended = [sagentry("plugin", "check", "--target", target) for target in targets]

    assert [done.returncode for done in ended] == [2] * len(targets)
    assert [len(done.stderr.splitlines()) for done in ended] == [1] * len(targets)


def test_a_command_that_ends_is_quoted_with_its_last_words() -> None:
    done = sagentry("plugin", "check", "--target", "exec:sh -c 'echo no database; exit 7'")

    assert "ended with code 7" in done.stderr
    assert "no database" in done.stderr


def test_a_server_that_is_no_plugin_is_named_so() -> None:
    with serving_admin() as address:
        done = sagentry("plugin", "check", "--target", address)

    assert done.returncode == 2
    assert "not a plugin" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--target", TARGET, "--format", "yaml"],
        ["--target", TARGET, "--level", "4"],
        ["--target", TARGET, "--contract", "StateService"],
        ["--target", TARGET, "--known-failing", "/no/such/file"],
        ["--taget", TARGET],
    ],
    ids=["no target", "format", "level", "contract", "file", "option"],
)
def test_wrong_usage_has_exit_code_3(arguments: list[str]) -> None:
    assert sagentry("plugin", "check", *arguments).returncode == 3


def test_list_shows_one_case_a_line_without_a_plugin() -> None:
    done = sagentry("plugin", "check", "--list", "--level", "0")

    assert done.returncode == 0
    assert all(line.startswith("attach.") for line in done.stdout.splitlines())


class Admin(admin_grpc.AdminServiceServicer):
    """Answers ListPlugins with what it is given."""

    def __init__(self, *plugins: admin_pb.Plugin) -> None:
        self._plugins = plugins

    def ListPlugins(  # noqa: N802  the contract's name
        self, _request: admin_pb.ListPluginsRequest, _context: grpc.ServicerContext
    ) -> admin_pb.ListPluginsResponse:
        return admin_pb.ListPluginsResponse(plugins=self._plugins)


@contextmanager
def serving_admin(*plugins: admin_pb.Plugin) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    admin = Admin(*plugins)  # type: ignore[abstract]  # only what is called
    admin_grpc.add_AdminServiceServicer_to_server(admin, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


STORE = admin_pb.Plugin(
    name="store",
    target="unix:/run/store.sock",
    state=admin_pb.PLUGIN_STATE_ATTACHED,
    identity=admin_pb.PluginIdentity(name="com.example.store", version="1.2.0"),
    contracts=[
        admin_pb.PluginContract(
            service="sagentry.api.plugin.v1.AgentPersistenceService", bound=True
        )
    ],
)
MENTION = admin_pb.Plugin(
    name="mention",
    target="dns:///mention:7000",
    state=admin_pb.PLUGIN_STATE_REFUSED,
    contracts=[
        admin_pb.PluginContract(service="sagentry.api.plugin.v1.MessagePreprocessorService")
    ],
    problem="it serves [no] MessagePreprocessorService",
    problem_reason="PLUGIN_INCOMPATIBLE",
)


def test_attached_plugins_are_listed_with_exit_code_0() -> None:
    with serving_admin(STORE) as address:
        done = sagentry("plugin", "list", "--server", address)

    assert (done.returncode, done.stderr) == (0, "")
    row = done.stdout.splitlines()[1]
    assert row.split() == [
        "store",
        "attached",
        "unix:/run/store.sock",
        "1/1",
        "com.example.store",
        "1.2.0",
    ]


def test_a_plugin_that_is_not_attached_is_listed_with_the_reason_and_exit_code_1() -> None:
    with serving_admin(STORE, MENTION) as address:
        done = sagentry("plugin", "list", "--server", address)

    assert done.returncode == 1
    problems = [line for line in done.stdout.splitlines() if line.startswith("mention:")]
    assert problems == ["mention: it serves [no] MessagePreprocessorService (PLUGIN_INCOMPATIBLE)"]


def test_plugins_are_listed_as_json() -> None:
    with serving_admin(STORE, MENTION) as address:
        done = sagentry("plugin", "list", "--server", address, "--json")

    store, mention = json.loads(done.stdout)["plugins"]
    assert store["contracts"][0]["bound"] is True
    assert (mention["state"], mention["problem"]) == (
        "PLUGIN_STATE_REFUSED",
        "it serves [no] MessagePreprocessorService",
    )


def test_a_server_that_does_not_answer_is_one_line_and_exit_code_2() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        done = sagentry("plugin", "list", "--server", address)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"no server answers at {address}" in done.stderr
