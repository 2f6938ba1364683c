"""The page about the configuration: its example is loaded, and nothing is missing in it."""

from __future__ import annotations

from pathlib import Path

import yaml

from sagentry.server.settings import MAPS, SECTIONS, Settings
from sagentry.server.settings_sources import load_settings

EXAMPLE = Path("docs/examples/sagentry.yaml")


def test_the_example_of_the_docs_is_a_configuration() -> None:
    """What somebody copies must start."""
    settings = load_settings(EXAMPLE, {"HOME": "/people/ada"})

    assert sorted(settings.plugins) == ["guard", "store"]
    assert settings.profiles["default"].tools == ("current_time", "calculate")
    answers = EXAMPLE.absolute().parent / "answers.yaml"
    assert settings.profiles["rehearsal"].model == f"script:{answers}"


def test_the_example_sets_every_setting() -> None:
    """A setting that is not in it would be found by nobody."""
    example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    missing = set(Settings.model_fields) - set(example)
    for name, model in SECTIONS.items():
        missing |= {f"{name}.{key}" for key in set(model.model_fields) - set(example[name])}
    for name, model in MAPS.items():
        given = set().union(*example[name].values())
        missing |= {f"{name}.{key}" for key in set(model.model_fields) - given}

    assert missing == set()


def test_nested_settings_can_be_set_by_the_environment() -> None:
    """A container has no file to edit."""
    environ = {
        "HOME": "/people/ada",
        "SAGENTRY_JOURNAL__FSYNC": "false",
        "SAGENTRY_LIMITS__LIVE_AGENTS": "7",
        "SAGENTRY_PROFILES__DEFAULT__TOOLS": "calculate, current_time",
    }
    settings = load_settings(None, environ)

    assert settings.journal.fsync is False
    assert settings.limits.live_agents == 7
    assert settings.profiles["default"].tools == ("calculate", "current_time")
