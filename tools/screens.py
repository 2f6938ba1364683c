"""Puts what a real terminal shows of `sagentry chat` into the docs; --check says whether it is there.

A page has `<!-- screen: NAME -->` where a screen belongs; what follows it, a fenced block, is replaced.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# Found beside this folder.
from tests.support.serve import SAGENTRY, serving  # noqa: E402
from tests.support.terminal import Terminal, terminal  # noqa: E402

PAGES = (ROOT / "docs" / "command.md",)
PLACE = re.compile(
    r"<!-- screen: (?P<name>[a-z-]+) -->\n+(?P<block>```text\n.*?\n```\n+)?", re.DOTALL
)


async def chat(screen: Terminal) -> None:
    """A greeting, a tool at work, and the line for the next message."""
    await screen.until("chat · new")
    screen.type("Hello!\r")
    await screen.until("tokens")
    screen.type("What is 17 * 23?\r")
    await screen.until("391.")
    await screen.until("ready")


SCREENS: dict[str, tuple[list[str], Callable[[Terminal], Awaitable[None]]]] = {
    "chat": (["chat"], chat),
}


async def capture(folder: Path, address: str, name: str) -> str:
    words, play = SCREENS[name]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "SAGENTRY_SERVER": address}
    async with terminal(SAGENTRY, *words, environment=environment, columns=76) as screen:
        await play(screen)
        return f"$ sagentry {' '.join(words)}\n{screen.text()}"


def main() -> int:
    is_check = sys.argv[1:] == ["--check"]
    stale = []
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as name:
        folder = Path(name)
        address = f"unix:{folder}/s"
        with serving(folder, "--listen", address):
            screens = {one: asyncio.run(capture(folder, address, one)) for one in SCREENS}
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = PLACE.sub(
            lambda place: (
                f"<!-- screen: {place['name']} -->\n\n```text\n{screens[place['name']]}\n```\n\n"
            ),
            old,
        )
        if new != old:
            stale.append(str(page.relative_to(ROOT)))
            if not is_check:
                page.write_text(new, encoding="utf-8")
    for page_name in stale:
        print(f"screens: {page_name} {'is not current: make screens' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
