"""A model that tries again, and others in its place: for one call, never for a whole run.

Only a call that has said nothing yet is repeated. Once readers have seen a word of it, a failure is theirs to
see as well, and what was said is kept.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta

from sagentry.server.domain.models import (
    CONTENT_CHUNKS,
    AttemptFailed,
    ModelCallError,
    ModelChunk,
    ModelRequest,
)
from sagentry.server.model_ports import ChatModel
from sagentry.server.ports import Clock

_log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
"""A provider that wants a longer one is not waited for."""


class ResilientModel:
    """Asks one model after the other. Source: design §5.5, spec §7.10 without its fault.

    Args:
        models: The model and those that stand in for it, in order.
        retries: How often each is asked again after a failure that may pass.
        clock: Waits between attempts.
    """

    def __init__(self, models: Sequence[ChatModel], *, retries: int, clock: Clock) -> None:
        """Takes the name of the first."""
        self.name = models[0].name
        self._models = tuple(models)
        self._retries = retries
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        """Answers as the first model that can; each failure before that is an AttemptFailed.

        Raises:
            ModelCallError: That of the last attempt, or of the one that had begun to answer.
        """
        attempt = 0
        for is_last, model in _with_end(self._models):
            for retry in range(self._retries + 1):
                attempt += 1
                failure: ModelCallError | None = None
                has_begun = False
                try:
                    async with aclosing(model.stream(request)) as chunks:
                        async for chunk in chunks:
                            has_begun = has_begun or isinstance(chunk, CONTENT_CHUNKS)
                            yield chunk
                except ModelCallError as error:
                    failure = error
                if failure is None:
                    return
                pause = _pause(failure, retry)
                goes_on = pause is not None and retry < self._retries
                if has_begun or (is_last and not goes_on):
                    raise failure
                _log.warning(
                    "a model call failed",
                    extra={"model": model.name, "attempt": attempt, "reason": failure.reason},
                )
                yield AttemptFailed(model.name, attempt, failure)
                if not goes_on or pause is None:
                    break
                await self._clock.sleep(pause)


def _with_end(models: Sequence[ChatModel]) -> list[tuple[bool, ChatModel]]:
    return [(number == len(models), model) for number, model in enumerate(models, 1)]


def _pause(failure: ModelCallError, retry: int) -> timedelta | None:
    """Returns how long to wait before the next attempt; None if there is no sense in one."""
    if not failure.retryable:
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= LONGEST_PAUSE else None
    # Spread, so that agents that failed together do not come back together.
    spread = random.uniform(0.5, 1.0)  # noqa: S311 - guards nothing
    return min(FIRST_PAUSE * (1 << retry), LONGEST_PAUSE) * spread
