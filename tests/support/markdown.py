"""Reads what the project's Markdown promises: commands and links."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import ROOT

FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Command:
    """A command of a `console` block, and lines that its output has, in this order."""

    page: str
    line: str
    output: tuple[str, ...]
    runs: bool
    """Whether the block is marked `console run`."""


def pages() -> list[Path]:
    """All Markdown files for readers of the project."""
    folders = (ROOT / "docs", ROOT / "bench")
    found = [page for folder in folders for page in sorted(folder.rglob("*.md"))]
    ours = [page for page in found if "node_modules" not in page.parts]
    return [*sorted(ROOT.glob("*.md")), *ours]


def commands(page: Path) -> list[Command]:
    """The commands of a page: each line that starts with `$ `, with the lines up to the next."""
    found = []
    for block in FENCE.finditer(page.read_text(encoding="utf-8")):
        info = block["info"].split()
        if info[:1] != ["console"]:
            continue
        for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
            line, *output = part.splitlines()
            shown = tuple(text for text in output if text.strip() and text.strip() != "…")
            found.append(Command(str(page.relative_to(ROOT)), line, shown, "run" in info))
    return found


def prose(page: Path) -> str:
    """A page without its code."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as viewers of Markdown make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(
        r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    ):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def dead_links(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    dead = []
    for match in LINK.finditer(prose(page)):
        path, _, anchor = match["target"].partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        lacks_heading = anchor and target.is_file() and anchor not in anchors(target)
        if not target.exists() or lacks_heading:
            dead.append(match["target"])
    return dead
