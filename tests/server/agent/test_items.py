from __future__ import annotations

from datetime import UTC, datetime

from sagentry.server.agent.items import display_items
from sagentry.server.domain.display import FileReference, TextContent, TextKind
from sagentry.server.domain.messages import MediaKind, MediaPart, Message, Part, Role, TextPart


def shown(*parts: Part) -> list[object]:
    message = Message("m", Role.USER, parts, create_time=datetime(2026, 1, 1, tzinfo=UTC))
    return [item.content for item in display_items(message)]


def test_a_file_by_address_is_shown_where_it_stands() -> None:
    """Without it nobody can see what a message refers to."""
    file = MediaPart(MediaKind.FILE, "application/pdf", "B", url="https://example.org/b.pdf")

    assert shown(TextPart("see"), file, TextPart("please")) == [
        TextContent(TextKind.TEXT, "see"),
        FileReference("https://example.org/b.pdf", "B", "application/pdf"),
        TextContent(TextKind.TEXT, "please"),
    ]


def test_a_file_by_value_is_no_reference_that_leads_nowhere() -> None:
    file = MediaPart(MediaKind.FILE, "application/pdf", "B", data=b"%PDF")

    assert shown(TextPart("see"), file) == [TextContent(TextKind.TEXT, "see")]
