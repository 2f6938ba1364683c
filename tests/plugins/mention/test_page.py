"""The page about the plugin names what there is."""

from __future__ import annotations

import re

from sagentry.plugins.mention import preprocessor
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "plugins" / "mention.md").read_text(encoding="utf-8")


def test_the_page_lists_every_reason_to_reject_and_no_other() -> None:
    reasons = {
        name for name, value in vars(preprocessor).items() if name.isupper() and value == name
    }

    assert set(re.findall(r"(?m)^\| `([A-Z_]+)` \|", PAGE)) == reasons
