"""Attaching plugins: over every transport, after restarts, and one clear line for each way it fails."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from sagentry.server.domain.plugins import PluginState
from sagentry.server.errors import InvalidInputError, NotFoundError
from sagentry.server.plugin.host import PluginHost
from sagentry.server.plugin.target import parse_target
from tests.support.hosts import (
    Configured,
    attached,
    hosting,
    launched,
    pids_in,
    plain_plugin,
    problem_of,
    until,
    until_dead,
    until_gone,
)


async def test_a_plugin_attaches_over_a_unix_socket(tmp_path: Path) -> None:
    async with plain_plugin(f"unix:{tmp_path}/p"), hosting(store=f"unix:{tmp_path}/p") as host:
        view = await attached(host, "store")

    assert view.identity is not None
    assert view.identity.name == "com.example.plain"
    assert view.contracts[0].bound
    assert view.contracts[0].capabilities == ("FENCING",)
    assert view.problem == ""


async def test_a_plugin_attaches_over_tcp() -> None:
    async with (
        plain_plugin("127.0.0.1:0") as running,
        hosting(store=f"dns:///127.0.0.1:{running.port}") as host,
    ):
        view = await attached(host, "store")

    assert view.state is PluginState.ATTACHED


async def test_a_launched_plugin_attaches_and_ends_with_its_host(tmp_path: Path) -> None:
    async with hosting(store=launched(pid_file=tmp_path / "pids")) as host:
        view = await attached(host, "store")
        pids = pids_in(tmp_path / "pids")

    await until_dead(pids)
    assert view.process_starts == 1


async def test_what_a_plugin_prints_first_does_not_matter() -> None:
    """Field report 6: any print before the handshake broke the plugin."""
    async with hosting(store=launched("banner")) as host:
        assert (await attached(host, "store")).state is PluginState.ATTACHED


async def test_a_flood_of_output_neither_blocks_the_plugin_nor_fills_the_host() -> None:
    async with hosting(store=launched("flood")) as host:
        assert (await attached(host, "store")).state is PluginState.ATTACHED


async def test_a_plugin_that_ignores_sigterm_and_leaves_children_is_ended_all_the_same(
    tmp_path: Path,
) -> None:
    """Field reports 4 and 5: a stop that leaked grandchildren, or hung for hours."""
    target = launched("ignore-sigterm", "grandchild", pid_file=tmp_path / "pids")
    async with hosting(store=target) as host:
        await attached(host, "store")
        pids = pids_in(tmp_path / "pids")

    assert len(pids) == 2
    await until_dead(pids)


async def test_plugins_and_their_children_die_with_a_killed_server(tmp_path: Path) -> None:
    """Field report 3: plugins outlived their host."""
    runtime = tmp_path / "run"
    runtime.mkdir()
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.plugins.host_program",
        str(tmp_path / "pids"),
        str(runtime),
        "ignore-sigterm",
        "grandchild",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert program.stdout is not None
    async with asyncio.timeout(30):
        assert await program.stdout.readline() == b"attached\n"
    pids = pids_in(tmp_path / "pids")
    program.send_signal(signal.SIGKILL)
    await program.wait()

    await until_dead(pids)
    await until_gone(runtime)


async def test_a_plugin_is_used_again_after_its_own_restart(tmp_path: Path) -> None:
    """Field report 11: a plugin that was away once was never used again."""
    endpoint = f"unix:{tmp_path}/p"
    async with hosting(store=endpoint) as host:
        async with plain_plugin(endpoint) as running:
            first = await attached(host, "store")
            await running.kill()
            await until(host, lambda: host.get_plugin("store").state is PluginState.CONNECTING)
        async with plain_plugin(endpoint):
            second = await attached(host, "store")

    assert first.identity is not None
    assert second.identity is not None
    assert first.identity.instance_id != second.identity.instance_id


async def test_a_launched_plugin_that_dies_is_launched_again(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    async with hosting(store=launched(pid_file=pid_file)) as host:
        await attached(host, "store")
        os.kill(pids_in(pid_file)[0], signal.SIGKILL)
        await until(host, lambda: "ended by signal 9" in host.get_plugin("store").problem)
        view = await attached(host, "store")

    assert view.process_starts == 2


async def test_a_plugin_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """Field report 10 and 11: the good one serves, the missing one is named and not given up."""
    endpoint = f"unix:{tmp_path}/late"
    async with hosting(good=launched(), late=endpoint) as host:
        good = await attached(host, "good")
        late = await problem_of(host, "late")
        async with plain_plugin(endpoint):
            came = await attached(host, "late")

    assert good.state is PluginState.ATTACHED
    assert late.state is PluginState.CONNECTING
    assert endpoint in late.problem
    assert late.next_attempt_time is not None
    assert came.state is PluginState.ATTACHED


async def test_a_first_answer_that_fails_is_asked_for_again() -> None:
    """Field report 12: a failure of the first info call was never tried again."""
    async with hosting(store=launched("first-info-fails")) as host:
        assert (await attached(host, "store")).state is PluginState.ATTACHED


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no-plugin", ["gRPC server", "not a Sagentry plugin"]),
        ("no-health", ["no health service"]),
        ("no-name", ["name must be"]),
        ("info-echo", ["another request_id"]),
        ("new-version", ["plugin.v7.", "this server needs", "upgrade the server"]),
        ("old-version", ["plugin.v0.", "this server needs", "upgrade the plugin"]),
    ],
)
async def test_a_plugin_that_cannot_be_used_is_refused_in_one_clear_line(
    fault: str, words: list[str]
) -> None:
    """Field report 59: a version error did not say who is old."""
    async with hosting(store=launched(fault)) as host:
        await until(host, lambda: host.get_plugin("store").state is PluginState.REFUSED)
        view = host.get_plugin("store")

    assert all(word in view.problem for word in words), view.problem
    assert "\n" not in view.problem
    assert view.problem_reason


async def test_a_plugin_that_is_not_serving_yet_is_waited_for() -> None:
    async with hosting(store=launched("not-serving")) as host:
        await until(host, lambda: "not serving" in host.get_plugin("store").problem)
        view = host.get_plugin("store")

    assert view.state is PluginState.CONNECTING


async def test_a_contract_that_the_plugin_does_not_have_is_named() -> None:
    configured = Configured(launched(), ("agent_persistence", "message_preprocessor"))
    async with hosting(store=configured) as host:
        await until(host, lambda: host.get_plugin("store").state is PluginState.REFUSED)
        problem = host.get_plugin("store").problem

    assert "MessagePreprocessorService" in problem


async def test_a_listener_that_speaks_no_grpc_is_named() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, hosting(store=f"dns:///127.0.0.1:{port}") as host:
        view = await problem_of(host, "store")

    assert "not a gRPC server" in view.problem
    assert f"127.0.0.1:{port}" in view.problem


async def test_a_program_that_does_not_exist_or_exits_is_named() -> None:
    async with hosting(gone="exec:/no/such/program --flag", exits=launched("exit")) as host:
        await until(host, lambda: "cannot be started" in host.get_plugin("gone").problem)
        await until(host, lambda: "exited with code 3" in host.get_plugin("exits").problem)


async def test_a_proxy_of_the_environment_does_not_capture_local_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Field report 46: http_proxy hijacked localhost."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with (
        plain_plugin("127.0.0.1:0") as running,
        hosting(store=f"dns:///127.0.0.1:{running.port}") as host,
    ):
        assert (await attached(host, "store")).state is PluginState.ATTACHED


async def test_an_operator_can_try_at_once(tmp_path: Path) -> None:
    endpoint = f"unix:{tmp_path}/p"
    async with hosting(store=endpoint) as host:
        await problem_of(host, "store")
        async with plain_plugin(endpoint):
            view = await host.test_plugin("store")

    assert view.state is PluginState.ATTACHED


async def test_a_plugin_that_is_not_configured_is_not_found(tmp_path: Path) -> None:
    host = PluginHost({}, runtime_dir=tmp_path, host_version="0")
    with pytest.raises(NotFoundError) as caught:
        host.get_plugin("stroe")

    assert caught.value.reason == "PLUGIN_NOT_FOUND"


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:7500",
        "unix:relative.sock",
        "unix:/" + "x" * 200,
        "dns://store:7500",
        "dns:///store",
        "dns:///store:99999",
        "exec:",
        "exec:'unbalanced",
        "",
    ],
)
def test_a_malformed_target_is_refused_with_the_right_spelling(target: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_target(target, "plugins.store.target")

    assert caught.value.field == "plugins.store.target"


def test_secrets_of_a_command_line_are_not_shown() -> None:
    assert "hunter2" not in parse_target("exec:store --password hunter2").redacted()
