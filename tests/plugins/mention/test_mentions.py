"""Which `@` of a text is a mention. Each that is wrongly one costs a user a rejected message."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagentry.plugins.mention.mentions import find_mentions, written


def names(text: str) -> list[str]:
    return [mention.name for mention in find_mentions(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@Plan", ["Plan"]),
        ("see @Plan", ["Plan"]),
        ("@Plan and @Notes, then @Plan", ["Plan", "Notes", "Plan"]),
        ("(@Plan), @Notes. @More! @Last?", ["Plan", "Notes", "More", "Last"]),
        ("@Plan's end; *@Notes* _@Other_ **@Bold**", ["Plan", "Notes", "Other", "Bold"]),
        ("line\n@Plan\n@Notes", ["Plan", "Notes"]),
        ("@plan-b @plan_b @plan.v2.md @2024", ["plan-b", "plan_b", "plan.v2.md", "2024"]),
        ("wait...@Plan...", ["Plan"]),
        ("@Plan- @Plan--", ["Plan", "Plan"]),
        ("@Übersicht @データ @план", ["Übersicht", "データ", "план"]),
        ("@e\u0301tat", ["e\u0301tat"]),
        ("@\u0939\u093f\u0928\u094d\u0926\u0940", ["\u0939\u093f\u0928\u094d\u0926\u0940"]),
        ('@"Quarterly report" please', ["Quarterly report"]),
        ('"@Plan" and @" Quarterly report ".', ["Plan", "Quarterly report"]),
        ("@\u201cQuarterly report\u201d @\u201ePlan B\u201c", ["Quarterly report", "Plan B"]),
        ("\\\\@Plan", ["Plan"]),
        ('@"../etc/passwd"', ["../etc/passwd"]),
    ],
)  # fmt: skip
def test_a_mention_is_found_wherever_it_stands(text: str, found: list[str]) -> None:
    assert names(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "no at all",
        "@",
        "at @ noon",
        "ada@example.org",
        "first.last+tag@example.org, jobs-@example.org",
        "\u00e9@example.org",
        "@ada@social.example",
        "https://example.org/@ada and example.org/@ada",
        "https://example.org/?by=@ada&to=@bob",
        "@@Plan @@@Plan",
        "\\@Plan",
        "\\\\\\@Plan",
        "`@property`",
        "``a ` @property``",
        "```python\n@property\ndef a(self): ...\n```",
        "~~~\n@property\n```\n@cached\n~~~",
        "```\n@property without an end",
        '@"" @" "',
        '@"no end',
        '@"no end\n in this line"',
        '@"' + "n" * 256 + '"',
        "@-- @__",
    ],
)
def test_an_at_that_means_something_else_is_left_alone(text: str) -> None:
    assert names(text) == []


def test_code_ends_where_it_ends() -> None:
    text = "`a` @One ``b`` @Two\n```\n@code\n```\n@Three `c\n\n@Four `d"

    assert names(text) == ["One", "Two", "Three", "Four"]


@given(st.text(alphabet='@ab "._-\\`\n/\u201c\u201d\u00e9', max_size=40))
def test_every_name_that_is_found_is_part_of_the_text_behind_its_at(text: str) -> None:
    for mention in find_mentions(text):
        assert text[mention.start] == "@"
        assert mention.name in text[mention.start :]
        assert mention.name == mention.name.strip()


@given(st.text(alphabet="ab 1.,-_'\u00e9", min_size=1, max_size=20).map(str.strip).filter(bool))
def test_how_a_name_is_shown_to_users_is_how_it_can_be_written(name: str) -> None:
    assert names(f"see {written(name)} please") == [name]


@pytest.mark.parametrize(
    "unit",
    ["@", "@a ", '@"', "@\u201c", "`", "`@``", "\\@", "-@", "@a", "://", "```\n", "\n \n@a`"],
)
def test_a_long_text_of_any_kind_takes_no_time_that_matters(unit: str) -> None:
    text = unit * (1024 * 1024 // len(unit.encode()))
    begun = time.process_time()

    find_mentions(text)

    assert time.process_time() - begun < 4, "the host gives up after 5 s"
