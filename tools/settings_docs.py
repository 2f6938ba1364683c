"""Makes docs/configuration.md from the settings and from the example in docs/examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sagentry.server.settings import MAPS, SECTIONS, Settings

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "sagentry.yaml"

INTRODUCTION = """# Configuration

<!-- Made from the settings by tools/settings_docs.py: edit server/sagentry/server/settings.py instead. -->

`sagentry serve` takes its settings from four places, the first one that has a value winning:

1. options on the command line (`sagentry serve --help`);
2. environment variables: `SAGENTRY_` and the key in capitals, `__` between levels, lists with commas:
   `SAGENTRY_DRAIN_TIMEOUT=10s`, `SAGENTRY_JOURNAL__FSYNC=false`,
   `SAGENTRY_LISTEN=127.0.0.1:7433,unix:/run/s.sock`;
3. one YAML file: `sagentry serve --config sagentry.yaml`;
4. the defaults below.

A duration has its unit: `500ms`, `30s`, `5m`, `1h`. What is wrong is named with its place, and all of it
at once: an unknown key with the file and the line (and the key that was probably meant), a value with
what it must be. The server does not start then, and exits with 2.

Without any configuration the server keeps states and messages in a SQLite file in its data folder and
answers with the demo model.

## A complete example

"""


def write(target: Path) -> None:
    """Writes the page to a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page."""
    example = EXAMPLE.read_text(encoding="utf-8")
    parts = [f"{INTRODUCTION}```yaml\n{example}```\n", _section("Settings", "", Settings)]
    for name, model in SECTIONS.items():
        parts.append(_section(f"`{name}`", f"{name}__", model))
    for name, model in MAPS.items():
        singular = name.removesuffix("s").upper()
        parts.append(_section(f"`{name}: {{NAME: …}}`", f"{name}__{singular}__", model))
    return "\n".join(parts)


def _section(title: str, prefix: str, model: type[BaseModel]) -> str:
    lines = [f"## {title}", "", _sentence(model.__doc__ or ""), ""]
    lines += ["| key | environment variable | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        variable = f"SAGENTRY_{prefix}{name}".upper()
        shown = "" if name in {*SECTIONS, *MAPS} else f"`{variable}`"
        lines.append(f"| `{name}`{_required(field)} | {shown} | {_sentence(_text(field))} |")
    return "\n".join([*lines, ""])


def _text(field: FieldInfo) -> str:
    if not field.description:
        message = "a setting without a description"
        raise SystemExit(message)
    return field.description


def _required(field: FieldInfo) -> str:
    return " (required)" if field.is_required() else ""


def _sentence(text: str) -> str:
    first: Any = re.split(r"\n\s*\n| Order matters", text.strip())[0]
    return re.sub(r"\s+", " ", str(first)).replace("|", "\\|")
