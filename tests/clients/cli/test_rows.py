"""What people read of a transcript, and what must never reach their terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from google.protobuf import text_format
from rich.console import Console

from sagentry.api.type.v1 import display_pb2
from sagentry.cli.rows import as_markdown, as_renderable, as_text, is_settled, shown
from sagentry.cli.safe_text import safe_line, safe_text

CALL = """
  tool_status: TOOL_STATUS_{status}
  content {{ tool_call {{ call_id: "c" name: "search" arguments_json: '{{"q": "x"}}' }} }}
"""

ROWS = {
    "user": (
        'type: DISPLAY_MESSAGE_TYPE_USER content { text { text: "Hi\\nthere" } }',
        "You: Hi\nthere",
        "**You:**\n\nHi\nthere",
    ),
    "thinking": (
        'type: DISPLAY_MESSAGE_TYPE_ASSISTANT content { thinking { text: "hm\\nm" } }',
        "Agent (thinking): hm\nm",
        "> *thinking:* hm\n> m",
    ),
    "cut": (
        (
            "type: DISPLAY_MESSAGE_TYPE_ASSISTANT"
            ' content { text { text: "Half" } stop_reason: MESSAGE_STATUS_STREAM_ERROR }'
        ),
        "Agent: Half\n  (cut: the model or the server died)",
        "**Agent:**\n\nHalf\n\n*(cut: the model or the server died)*",
    ),
    "running call": (
        CALL.format(status="EXECUTING"),
        'Tool search({"q": "x"}): running',
        '**Tool** `search({"q": "x"})` — running',
    ),
    "failed call": (
        CALL.format(status="FAILED") + 'tool_info { error: "no ``` such" display_text: "Search" }',
        'Tool Search({"q": "x"}): failed\n  no ``` such',
        '**Tool** `Search({"q": "x"})` — failed\n\n````\nno ``` such\n````',
    ),
    "result": (
        'content { tool_result { name: "search" text: "found" } }',
        "Result of search: found",
        "**Result** of `search`\n\n```\nfound\n```",
    ),
    "error": (
        'content { error { text: "The model is overloaded" } }',
        "Error: The model is overloaded",
        "**Error:** The model is overloaded",
    ),
    "todos": (
        (
            'content { todo_snapshot { todos { content: "a" status: TODO_STATUS_COMPLETED }'
            ' todos { content: "b" } } }'
        ),
        "— [x] a\n[?] b",
        "> [x] a\n> [?] b",
    ),
    "unknown": ("content { }", "— [something that this version cannot show]", None),
}


def row(text: str) -> display_pb2.DisplayMessage:
    return text_format.Parse(text, display_pb2.DisplayMessage())


def on_terminal(one: Any, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(as_renderable(one))
    return file.getvalue()


@pytest.mark.parametrize(("source", "text", "markdown"), ROWS.values(), ids=ROWS.keys())
def test_every_row_says_what_happened(source: str, text: str, markdown: str | None) -> None:
    one = shown(row(source))

    assert as_text(one) == text
    assert markdown is None or as_markdown(one) == markdown
    assert on_terminal(one).strip()


@pytest.mark.parametrize("source", [source for source, _, _ in ROWS.values()], ids=ROWS.keys())
def test_a_narrow_terminal_loses_nothing_it_has_room_for(source: str) -> None:
    lines = on_terminal(shown(row(source)), width=20).splitlines()

    assert lines
    assert all(len(line) <= 20 for line in lines)


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b]52;c;cm0gLXJm\x07",
        "\x1b[2J\x1b[H",
        "\x9b31m",
        "a\rb",
        "\x07",
        "\u202egnp.exe",
        "\x7f",
    ],
    ids=["clipboard", "erase", "c1", "overwrite", "bell", "reorder", "delete"],
)
def test_text_of_strangers_cannot_command_a_terminal(hostile: str) -> None:
    source = display_pb2.DisplayMessage()
    source.content.text.text = f"before {hostile} after"
    call = display_pb2.DisplayMessage(tool_status=display_pb2.TOOL_STATUS_COMPLETED)
    call.content.tool_call.name = hostile
    call.content.tool_call.arguments_json = f'{{"a": "{hostile}"}}'
    call.tool_info.result = hostile
    for one in (shown(source), shown(call)):
        for text in (as_text(one), as_markdown(one), on_terminal(one)):
            assert not set(text) & set("\x1b\x9b\x07\r\x7f\u202e")
    assert "before" in as_text(shown(source))


def test_text_of_all_scripts_stays_as_it_is() -> None:
    text = "e\u0301 \U0001f469\u200d\U0001f4bb \u05e9\u05dc\u05d5\u05dd\n\tx"

    assert safe_text(text) == text
    assert safe_line("a\n\n b\tc") == "a b c"


def test_a_call_is_printed_for_good_only_when_nothing_more_can_happen_to_it() -> None:
    settled = {
        status: is_settled(row(CALL.format(status=status)))
        for status in ("PENDING", "EXECUTING", "INTERRUPTED", "COMPLETED", "FAILED", "CANCELLED")
    }

    assert [name for name, is_over in settled.items() if is_over] == [
        "COMPLETED",
        "FAILED",
        "CANCELLED",
    ]
