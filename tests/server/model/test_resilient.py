"""A call that fails is repeated, and given to others: a provider's bad minute must not end a conversation.

What was said is never said twice, and what was seen to fail stays a failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import pytest

from sagentry.server.domain.messages import TokenUsage
from sagentry.server.domain.models import (
    AttemptFailed,
    EndChunk,
    ModelCallError,
    ModelChunk,
    ModelRequest,
    StopKind,
    TextChunk,
    UsageChunk,
)
from sagentry.server.model.resilient import LONGEST_PAUSE, ResilientModel
from tests.support.memory_ports import FakeClock

pytestmark = pytest.mark.anyio

END = EndChunk(StopKind.STOP)
REQUEST = ModelRequest("", (), (), 1)

Answer = Sequence[ModelChunk | ModelCallError]


def busy(retry_after: float | None = None) -> ModelCallError:
    after = None if retry_after is None else timedelta(seconds=retry_after)
    return ModelCallError("MODEL_OVERLOADED", "busy", retryable=True, retry_after=after)


REFUSED = ModelCallError("MODEL_AUTHENTICATION", "wrong key")


class Model:
    """Gives its answers in order, the last one for ever."""

    def __init__(self, name: str, *answers: Answer) -> None:
        self.name = name
        self.answers = list(answers)
        self.calls = 0
        self.closed = 0

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            for step in answer:
                if isinstance(step, ModelCallError):
                    raise step
                yield step
        finally:
            self.closed += 1


class Asked:
    """What came of a call."""

    def __init__(self) -> None:
        self.chunks: list[ModelChunk] = []
        self.error: ModelCallError | None = None

    @property
    def text(self) -> str:
        return "".join(one.text for one in self.chunks if isinstance(one, TextChunk))

    @property
    def failures(self) -> list[tuple[str, int, str]]:
        failed = [one for one in self.chunks if isinstance(one, AttemptFailed)]
        return [(one.model, one.attempt, one.error.reason) for one in failed]


async def ask(*models: Model, retries: int = 2, clock: FakeClock | None = None) -> Asked:
    asked = Asked()
    model = ResilientModel(models, retries=retries, clock=clock or FakeClock())
    try:
        async for chunk in model.stream(REQUEST):
            asked.chunks.append(chunk)
    except ModelCallError as error:
        asked.error = error
    return asked


async def test_a_failure_that_passes_is_waited_out_and_told() -> None:
    clock = FakeClock()
    asked = await ask(Model("a", [busy()], [busy()], [TextChunk("Hello"), END]), clock=clock)

    assert (asked.text, asked.error) == ("Hello", None)
    assert asked.failures == [("a", 1, "MODEL_OVERLOADED"), ("a", 2, "MODEL_OVERLOADED")]
    assert 1.5 <= clock.seconds <= 3


async def test_the_provider_says_how_long_to_wait() -> None:
    clock = FakeClock()
    await ask(Model("a", [busy(17)], [END]), clock=clock)

    assert clock.seconds == 17


async def test_a_wait_that_is_too_long_is_for_somebody_else_to_decide() -> None:
    clock = FakeClock()
    long = LONGEST_PAUSE.total_seconds() + 1
    asked = await ask(Model("a", [busy(long)]), clock=clock)

    assert asked.error is not None
    assert asked.error.retry_after == timedelta(seconds=long)
    assert clock.seconds == 0


async def test_a_call_that_has_begun_to_answer_is_not_repeated() -> None:
    """The reader has seen the beginning; a second one would be glued to it, and paid for twice."""
    first, second = Model("a", [TextChunk("Hel"), busy()]), Model("b", [TextChunk("Hi"), END])
    asked = await ask(first, second)

    assert (asked.text, asked.failures) == ("Hel", [])
    assert asked.error is not None
    assert (first.calls, second.calls) == (1, 0)


async def test_tokens_alone_are_no_answer() -> None:
    usage = UsageChunk(TokenUsage(input_tokens=10))
    asked = await ask(Model("a", [usage, busy()], [TextChunk("Hello"), END]))

    assert (asked.text, asked.error) == ("Hello", None)


async def test_another_model_answers_when_one_cannot() -> None:
    first, second = Model("a", [busy()]), Model("b", [TextChunk("Hello"), END])
    asked = await ask(first, second, Model("c", [TextChunk("never"), END]), retries=1)

    assert (asked.text, asked.error) == ("Hello", None)
    assert asked.failures == [("a", 1, "MODEL_OVERLOADED"), ("a", 2, "MODEL_OVERLOADED")]


async def test_what_will_not_pass_is_not_repeated_but_given_to_another() -> None:
    first, second = Model("a", [REFUSED]), Model("b", [TextChunk("Hello"), END])
    asked = await ask(first, second)

    assert (first.calls, asked.text) == (1, "Hello")


async def test_the_last_failure_is_the_one_that_is_told() -> None:
    asked = await ask(Model("a", [busy()]), Model("b", [REFUSED]), retries=0)

    assert asked.error is REFUSED
    assert asked.failures == [("a", 1, "MODEL_OVERLOADED")]


async def test_a_caller_that_leaves_ends_the_call() -> None:
    model = Model("a", [TextChunk("one"), TextChunk("two"), END])
    chunks = ResilientModel([model], retries=2, clock=FakeClock()).stream(REQUEST)
    await anext(chunks)
    await chunks.aclose()

    assert model.closed == 1
