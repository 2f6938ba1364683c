"""An operator's mistake is named with its place before the server starts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sagentry.server.addresses import TcpAddress, UnixAddress
from sagentry.server.settings import Contract, Settings
from sagentry.server.settings_sources import SettingsError, load_settings, unknown_variables

HOME = {"HOME": "/people/ada"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sagentry.yaml"


def problems_of(
    file: Path | None,
    environ: dict[str, str] | None = None,
    options: dict[str, object] | None = None,
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {**HOME, **(environ or {})}, options)
    return [str(problem) for problem in caught.value.problems]


def test_without_anything_set_the_server_listens_on_loopback_and_in_the_data_home() -> None:
    settings = load_settings(None, HOME)

    assert settings.data_dir == Path("/people/ada/.local/share/sagentry")
    assert settings.listen == (
        UnixAddress(Path("/people/ada/.local/share/sagentry/sagentry.sock")),
        TcpAddress("127.0.0.1", 7433),
    )
    assert settings.drain_timeout == timedelta(seconds=25)


def test_the_data_home_of_the_xdg_variable_is_used() -> None:
    settings = load_settings(None, {**HOME, "XDG_DATA_HOME": "/data"})

    assert settings.data_dir == Path("/data/sagentry")


def test_a_relative_xdg_data_home_is_ignored_as_its_specification_wants() -> None:
    settings = load_settings(None, {**HOME, "XDG_DATA_HOME": "data"})

    assert settings.data_dir == Path("/people/ada/.local/share/sagentry")


def test_the_file_is_read(file: Path) -> None:
    file.write_text(
        "data_dir: /srv/sagentry\n"
        "listen: ['[::1]:0']\n"
        "drain_timeout: 500ms\n"
        "plugins:\n"
        "  store:\n"
        "    target: unix:/run/store.sock\n"
        "    contracts: [agent_persistence, display_message_persistence]\n"
    )

    settings = load_settings(file, HOME)

    assert settings.listen == (TcpAddress("::1", 0),)
    assert settings.drain_timeout == timedelta(milliseconds=500)
    assert settings.plugins["store"].target == "unix:/run/store.sock"
    assert settings.plugins["store"].contracts == (
        Contract.AGENT_PERSISTENCE,
        Contract.DISPLAY_MESSAGE_PERSISTENCE,
    )


def test_an_empty_file_sets_nothing(file: Path) -> None:
    file.write_text("# nothing\n")

    assert load_settings(file, HOME) == load_settings(None, HOME)


def test_options_are_above_the_environment_and_the_environment_above_the_file(file: Path) -> None:
    file.write_text("log_level: error\nlog_format: json\ndrain_timeout: 1s\n")

    settings = load_settings(
        file,
        {**HOME, "SAGENTRY_LOG_LEVEL": "warning", "SAGENTRY_DRAIN_TIMEOUT": "2s"},
        {"log_level": "debug"},
    )

    assert settings.log_level == "debug"
    assert settings.drain_timeout == timedelta(seconds=2)
    assert settings.log_format == "json"


def test_a_plugin_can_be_configured_by_the_environment_alone() -> None:
    settings = load_settings(
        None,
        {
            **HOME,
            "SAGENTRY_PLUGINS__STORE__TARGET": "dns:///store:50051",
            "SAGENTRY_PLUGINS__STORE__CONTRACTS": "agent_persistence, message_preprocessor",
        },
    )

    assert settings.plugins["store"].contracts == (
        Contract.AGENT_PERSISTENCE,
        Contract.MESSAGE_PREPROCESSOR,
    )


def test_variables_that_a_platform_makes_for_a_service_of_that_name_do_not_stop_the_server() -> (
    None
):
    environ = {
        **HOME,
        "SAGENTRY_PORT": "tcp://10.0.0.1:7433",
        "SAGENTRY_LOG_LEVEL": "info",
        "SAGENTRY_SERVER": "unix:/s",
    }

    load_settings(None, environ)

    assert unknown_variables(environ) == ["SAGENTRY_PORT"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\n  b: 2\n", ":2: malformed YAML: mapping values are not allowed here"),
        ("listen: [\n", ":2: malformed YAML: expected the node content, but found '<stream end>'"),
        ("- listen\n", ":1: must be a mapping of settings"),
        ("\n\ndrain_timeot: 3s\n", ":3: unknown key 'drain_timeot'; did you mean 'drain_timeout'?"),
        (
            "plugins:\n  a:\n    target: t\n    contracts: [agent_persistence]\n    colour: red\n",
            ":5: unknown key 'plugins.a.colour'",
        ),
        (
            "log_level: info\nlog_level: debug\n",
            ":2: key 'log_level' is there twice, first at ",
        ),
        (
            "\ndrain_timeout: 30\n",
            ":2: drain_timeout: must be a duration with its unit, for example 500ms, 30s or 5m",
        ),
        ("drain_timeout: 999999h\n", ":1: drain_timeout: must be at most a year"),
        (
            "listen:\n- 127.0.0.1:1\n- nowhere\n",
            ":3: listen.1: must be unix:/absolute/path, host:port or [v6-address]:port",
        ),
        (
            "listen: ['unix:here.sock']\n",
            ":1: listen.0: the path of a Unix socket must be absolute",
        ),
        ("listen: ['127.0.0.1:70000']\n", ":1: listen.0: the port must be at most 65535"),
        ("listen: []\n", ":1: listen: must name at least one address"),
        ("listen: [7433]\n", ":1: listen.0: must be text"),
        ("insecure: perhaps\n", ":1: insecure: input should be a valid boolean"),
        ("log_format: xml\n", ":1: log_format: input should be 'text' or 'json'"),
        ("1: x\n", ":1: 1: keys should be strings"),
        ("plugins:\n  a:\n    target: t\n", ":2: plugins.a.contracts: field required"),
        (
            "plugins:\n  a:\n    target: t\n    contracts:\n    - agent_persistance\n",
            ":5: plugins.a.contracts.0: input should be 'agent_persistence'",
        ),
        (
            "plugins: {a: {target: t, contracts: [agent_persistence, agent_persistence]}}\n",
            ":1: plugins.a.contracts: names a contract twice",
        ),
        ("plugins:\n  'a b': {target: t, contracts: [agent_persistence]}\n", ":2: plugins.a b: a"),
        ("log_level: \x07\n", ":1: malformed YAML: special characters are not allowed"),
        ("x: !!python/name:os.system {}\n", ":1: malformed YAML: could not determine"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(file: Path, text: str, expected: str) -> None:
    file.write_text(text)

    assert problems_of(file)[0].startswith(f"{file}{expected}")


def test_every_mistake_is_named_at_once(file: Path) -> None:
    file.write_text("log_level: loud\ndrain_timeout: soon\n")

    assert len(problems_of(file)) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"

    assert problems_of(missing) == [f"{missing}: cannot be read: No such file or directory"]


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


def test_a_file_that_is_not_text_is_named(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")

    assert problems_of(file) == [f"{file}: is not UTF-8 text"]


def test_a_file_nested_without_end_is_refused_and_does_not_crash(file: Path) -> None:
    file.write_text("[" * 5000)

    assert problems_of(file) == [f"{file}: is nested too deeply"]


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    assert problems_of(None, {"SAGENTRY_DRAIN_TIMEOUT": "5"})[0].startswith(
        "environment variable SAGENTRY_DRAIN_TIMEOUT: drain_timeout: must be a duration"
    )


def test_a_mistake_on_the_command_line_names_the_option() -> None:
    assert problems_of(None, options={"log_level": "loud"})[0].startswith(
        "option --log-level: log_level: input should be"
    )


@pytest.mark.parametrize("address", ["0.0.0.0:7433", "[::]:7433", "example.com:7433"])
def test_listening_off_loopback_is_refused_unless_it_is_asked_for(file: Path, address: str) -> None:
    file.write_text(f"log_level: info\nlisten: ['{address}']\n")

    assert problems_of(file)[0].startswith(f"{file}:2: listen.0: {address} can be reached")
    assert load_settings(file, HOME, {"insecure": True}).listen


def test_a_data_folder_with_too_long_a_path_for_its_socket_is_refused() -> None:
    [problem] = problems_of(None, options={"data_dir": "/" + "x" * 120})

    assert "has 135 bytes and at most 107 are possible" in problem


def test_neither_logs_nor_errors_show_a_plugins_target(file: Path) -> None:
    file.write_text(
        "plugins:\n  a:\n    target: 'exec:store --password=hunter2'\n    contracts: [nope]\n"
    )

    assert "hunter2" not in "\n".join(problems_of(file))
    settings = load_settings(
        None,
        {
            **HOME,
            "SAGENTRY_PLUGINS__A__TARGET": "exec:store --password=hunter2",
            "SAGENTRY_PLUGINS__A__CONTRACTS": "agent_persistence",
        },
    )
    assert "hunter2" not in repr(settings)


def test_settings_cannot_be_changed_while_the_server_runs(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)

    with pytest.raises(ValueError, match="frozen"):
        settings.insecure = True
    with pytest.raises(TypeError):
        settings.plugins["a"] = None  # type: ignore[index]


def test_every_setting_is_described() -> None:
    fields = Settings.model_fields.values()

    assert all(field.description for field in fields)
