"""Reads settings from a YAML file, the environment and the command line; says where one is wrong.

The command line is above the environment, the environment above the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sagentry.server.settings import MAPS, SECTIONS, Settings

ENVIRONMENT_PREFIX = "SAGENTRY_"

SCRIPT = "script:"
DEMO_SCRIPT = "script:demo"

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong.

    Attributes:
        source: Where: `file.yaml:3`, an environment variable, an option; empty when nowhere.
        message: What, for people.
    """

    source: str
    message: str

    def __str__(self) -> str:
        """Returns one line."""
        return f"{self.source}: {self.message}" if self.source else self.message


class SettingsError(Exception):
    """Settings that cannot be used.

    Attributes:
        problems: Everything that is wrong, at least one.
    """

    def __init__(self, *problems: SettingsProblem) -> None:
        """Puts each problem on a line of its own."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(slots=True)
class _Values:
    """Values collected from all sources, with the place that each came from."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[_Path, str] = field(default_factory=dict)

    def put(self, path: tuple[str, ...], value: object, place: str) -> None:
        """Sets a value, above whatever was there."""
        target = self.data
        for key in path[:-1]:
            inner = target.get(key)
            if not isinstance(inner, dict):
                inner = target[key] = {}
            target = inner
        target[path[-1]] = value
        for known in [known for known in self.places if known[: len(path)] == path]:
            del self.places[known]
        self.places[path] = place

    def place_of(self, path: _Path) -> str:
        """Returns the place of the value or of what it is in; empty when there is none."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return ""


def load_settings(
    file: Path | None,
    environ: Mapping[str, str],
    options: Mapping[str, object] | None = None,
) -> Settings:
    """Reads and checks all settings.

    Args:
        file: The YAML file, if there is one.
        environ: The environment: `SAGENTRY_DRAIN_TIMEOUT=5s`, `SAGENTRY_LISTEN=a,b`,
            `SAGENTRY_PLUGINS__STORE__TARGET=…`. Also says where the data home is.
        options: Values from the command line by name of the setting.

    Raises:
        SettingsError: The file is missing or malformed, or a value is; names file and line, the
            variable or the option.
    """
    values = _Values()
    if file is not None:
        _read_file(file, values)
    for variable, path in _variables(environ).items():
        value = environ[variable]
        is_list = path[-1] in {"listen", "contracts", "tools"}
        values.put(
            path,
            [part.strip() for part in value.split(",")] if is_list else value,
            f"environment variable {variable}",
        )
    for name, option in (options or {}).items():
        values.put((name,), option, f"option --{name.replace('_', '-')}")
    values.data.setdefault("data_dir", str(default_data_dir(environ)))
    try:
        return Settings.model_validate(values.data)
    except ValidationError as error:
        problems = [_problem(detail, values) for detail in error.errors(include_url=False)]
        raise SettingsError(*problems) from None


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Returns `sagentry` in the data home of the XDG base directories."""
    data_home = Path(environ.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        # The specification wants a relative XDG_DATA_HOME ignored.
        data_home = Path(environ.get("HOME", "~")) / ".local" / "share"
    return data_home / "sagentry"


CLIENT_VARIABLES = ("SAGENTRY_SERVER", "SAGENTRY_TENANT", "SAGENTRY_PARTITION")
"""What the commands that talk to a server read; whoever sets them for a shell also starts servers in it."""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns names of variables that look like settings and are none, in order.

    They are not refused: a container platform makes SAGENTRY_PORT and SAGENTRY_SERVICE_HOST of its
    own when a service is called sagentry, and plugins have variables of their own.
    """
    known = {*_variables(environ), *CLIENT_VARIABLES}
    return sorted(
        name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in known
    )


def _variables(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name in environ:
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        is_known = path[-1] in _keys_of(path[:-1])
        if is_known:
            found[name] = path
    return found


def _read_file(file: Path, values: _Values) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problem = SettingsProblem(str(file), f"cannot be read: {reason}")
        raise SettingsError(problem) from error
    except UnicodeDecodeError as error:
        raise SettingsError(SettingsProblem(str(file), "is not UTF-8 text")) from error
    try:
        _read_yaml(str(file), text, values)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = SettingsProblem(f"{file}:{line}", f"malformed YAML: {error.problem}")
        raise SettingsError(problem) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = SettingsProblem(f"{file}:{line}", f"malformed YAML: {error.reason}")
        raise SettingsError(problem) from error
    except RecursionError as error:
        raise SettingsError(SettingsProblem(str(file), "is nested too deeply")) from error


def _read_yaml(file: str, text: str, values: _Values) -> None:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return
        if not isinstance(node, yaml.MappingNode):
            problem = SettingsProblem(f"{file}:1", "must be a mapping of settings")
            raise SettingsError(problem)
        _note_lines(file, node, (), values.places)
        values.data = loader.construct_document(node)
        _anchor_scripts(values.data, Path(file).absolute().parent)
    finally:
        loader.dispose()


def _anchor_scripts(data: dict[str, Any], folder: Path) -> None:
    """Makes the scripts that a file names relative to the file, wherever the server is started."""
    profiles = data.get("profiles")
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        model = profile.get("model") if isinstance(profile, dict) else None
        if isinstance(model, str) and model.startswith(SCRIPT) and model != DEMO_SCRIPT:
            profile["model"] = f"{SCRIPT}{folder / model.removeprefix(SCRIPT)}"


def _note_lines(file: str, node: yaml.Node, path: _Path, places: dict[_Path, str]) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = (*path, str(index))
            places[inner] = f"{file}:{item.start_mark.line + 1}"
            _note_lines(file, item, inner, places)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = f"{file}:{key.start_mark.line + 1}"
            inner = (*path, str(key.value))
            if inner in places:
                # YAML itself would silently take the last one.
                problem = SettingsProblem(
                    place, f"key {key.value!r} is there twice, first at {places[inner]}"
                )
                raise SettingsError(problem)
            places[inner] = place
            _note_lines(file, value, inner, places)


def _problem(detail: ErrorDetails, values: _Values) -> SettingsProblem:
    # The key of a mapping has the pseudo-part "[key]" behind it.
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    name = ".".join(path)
    if detail["type"] == "extra_forbidden":
        guess = difflib.get_close_matches(path[-1], _keys_of(path[:-1]), n=1)
        hint = f"; did you mean {guess[0]!r}?" if guess else ""
        message = f"unknown key {name!r}{hint}"
    else:
        text = detail["msg"].removeprefix("Value error, ")
        message = f"{name}: {text[:1].lower()}{text[1:]}"
    return SettingsProblem(values.place_of(path), message)


def _keys_of(section: _Path) -> list[str]:
    """Returns the keys of a section of the settings: the top, `journal`, `plugins.NAME`; none if unknown."""
    match section:
        case ():
            model: type[BaseModel] | None = Settings
        case (name,):
            model = SECTIONS.get(name)
        case (name, _):
            model = MAPS.get(name)
        case _:
            model = None
    return list(model.model_fields) if model is not None else []
