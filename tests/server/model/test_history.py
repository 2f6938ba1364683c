from __future__ import annotations

import pytest

from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    OpaquePart,
    Role,
    ThinkingPart,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.domain.models import ModelCallError
from sagentry.server.model.history import check_history, history_problem
from tests.support.conversation import assistant, call, message, result, results, user

SIGNED = ThinkingPart("hm", b"signature")

BROKEN = {
    "there are no messages": [],
    "the first must be of role user": [assistant("a"), user("q")],
    "is the last and of role assistant": [user("q"), assistant("a")],
    "is of role user like the one before it": [user("q"), user("r")],
    "is of role assistant like the one before it": [
        user("q"),
        assistant("a"),
        assistant("b"),
        user("r"),
    ],
    "which belongs in the system prompt": [user("q"), message(Role.SYSTEM, "s")],
    "messages[0] has no parts": [user()],
    "messages[0].parts[1] is text without a visible character": [user("q", " ")],
    "is thinking without a signature": [user("q"), assistant(ThinkingPart("hm"), "a"), user("r")],
    "ends with thinking": [user("q"), assistant("a", SIGNED), user("r")],
    "is a ThinkingPart in a message of role user": [user(SIGNED)],
    "is a ToolCall in a message of role user": [user(call("c"))],
    "is a TextPart in a message of role tool": [
        user("q"),
        assistant(call("c")),
        message(Role.TOOL, "t"),
    ],
    "is the call look_up that the model did not finish": [
        user("q"),
        assistant(call("c", status=ToolCallStatus.INCOMPLETE)),
        results(result("c")),
    ],
    "is a call without a name or an id": [
        user("q"),
        assistant(call("c", "")),
        results(result("c")),
    ],
    "arguments that are not a JSON object": [
        user("q"),
        assistant(call("c", text="[]")),
        results(result("c")),
    ],
    "repeats the call id c": [user("q"), assistant(call("c"), call("c")), results(result("c"))],
    "look_up (c) have no results": [user("q"), assistant(call("c")), user("r")],
    "the last is no result": [user("q"), assistant(call("c"))],
    "has results for look_up (b), look_up (a), but": [
        user("q"),
        assistant(call("a"), call("b")),
        results(result("b"), result("a")),
    ],
    "has results for look_up (x), but the message before it calls nothing": [
        user("q"),
        results(result("x")),
    ],
    "is a result without parts": [
        user("q"),
        assistant(call("c")),
        results(ToolResult("c", "look_up", ())),
    ],
    "needs exactly one of url and data": [user(MediaPart(MediaKind.IMAGE, "image/png"))],
    "is opaque and empty": [user(OpaquePart(Document("x/y")))],
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_history_that_a_provider_would_refuse_in_production_is_refused_in_tests(
    words: str,
) -> None:
    problem = history_problem(BROKEN[words])
    assert problem is not None
    if words != "the last is no result":
        assert words in problem


def test_a_valid_history_passes() -> None:
    media = MediaPart(MediaKind.IMAGE, "image/png", data=b"x")
    check_history(
        [
            user("q", media),
            assistant(SIGNED, "a", call("c1"), call("c2")),
            results(result("c1"), result("c2")),
            user("r"),
            assistant("b"),
            user("s"),
        ]
    )


def test_the_refusal_is_typed_and_holds_no_content() -> None:
    with pytest.raises(ModelCallError) as caught:
        check_history([user("a secret"), user("another secret")])
    assert caught.value.reason == "HISTORY_INVALID"
    assert not caught.value.retryable
    assert "secret" not in caught.value.message
