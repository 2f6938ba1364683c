"""A state in which every field is set and every kind of part, end and status occurs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sagentry.server.domain.display import Todo, TodoStatus
from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    Message,
    MessageStatus,
    OpaquePart,
    Role,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError
from sagentry.server.domain.state import AgentState, RecordedAnswer, StartOptions

BEGIN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def _messages() -> list[Message]:
    call = ToolCall(
        "call-1",
        "look",
        '{"n": 12345678901234567890}',
        "toolu_1",
        "Looking",
        ToolCallStatus.COMPLETE,
    )
    cut = ToolCall("call-2", "look", '{"n"', status=ToolCallStatus.INCOMPLETE)
    image = MediaPart(MediaKind.IMAGE, "image/png", "a.png", data=b"\x89PNG\x00")
    file = MediaPart(MediaKind.FILE, "application/pdf", "b.pdf", url="https://example.org/b.pdf")
    sound = MediaPart(MediaKind.AUDIO, "audio/wav", data=b"")
    opaque = OpaquePart(Document("application/x-provider", data=bytes(range(16))))
    result = ToolResult(
        "call-1", "look", (TextPart("seen"), image), is_error=True, item_id="item-1"
    )
    usage = TokenUsage(1, 0, 2**53 + 1, None, 5)
    return [
        Message("m-1", Role.SYSTEM, (TextPart("Be kind."),), BEGIN),
        Message(
            "m-2",
            Role.USER,
            (TextPart("😀 שלום e\u0301 \x00 \ufffd"), image, file, sound),
            BEGIN + timedelta(seconds=1),
            metadata=Document("application/json", json=' {"a" : 1.50} '),
            run_id="run-1",
        ),
        Message(
            "m-3",
            Role.ASSISTANT,
            (ThinkingPart("hm", b"\x00signed\xff"), TextPart("Yes"), call, cut, opaque),
            BEGIN + timedelta(seconds=2),
            MessageStatus.CANCELLED,
            usage,
            run_id="run-1",
        ),
        Message("m-4", Role.TOOL, (result,), BEGIN + timedelta(seconds=3), run_id="run-1"),
        *(
            Message(f"m-{status.value}", Role.ASSISTANT, (TextPart(""),), BEGIN, status)
            for status in MessageStatus
        ),
    ]


def full_state() -> AgentState:
    """The state of `tests/golden/state_v1.json`."""
    error = RunError("MODEL_OVERLOADED", "the model is busy", retryable=True)
    runs = [
        Run(
            f"run-{end.value}",
            BEGIN,
            begun=True,
            turns=3,
            end=end,
            error=error,
            usage=TokenUsage(1, 2, 3, 4, 5),
            end_time=BEGIN + timedelta(minutes=1),
            unsaved=2,
            final_message_id="m-3",
        )
        for end in RunEnd
    ]
    answers = [
        RecordedAnswer("req-2", "0" * 64, {"message_id": "m-2", "run_id": "run-1"}),
        RecordedAnswer("req-1", "f" * 64, {}),
    ]
    return AgentState(
        revision=2**53 + 1,
        options=StartOptions(
            "careful",
            Document("application/json", json='{"max_turns":3}'),
            Document("application/json", json="{}"),
        ),
        messages=_messages(),
        growing={"m-stream_error", "m-length"},
        held=[Message("m-9", Role.USER, (TextPart("later"),), BEGIN)],
        started_calls={"call-9", "call-8"},
        answers={one.request_id: one for one in answers},
        runs={run.run_id: run for run in [*runs, Run("run-now", BEGIN)]},
        status=AgentStatus.PAUSED,
        error=error,
        pause_reason="journal",
        todos=tuple(Todo(n, f"step {n}", status) for n, status in enumerate(TodoStatus, 1)),
        title="Of π and \ud83d",
    )
