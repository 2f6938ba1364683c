"""How many streams a caller may have open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sagentry.server.errors import LimitExceededError


class StreamSlots:
    """Counts streams by caller; one too many is refused at once, and costs nothing."""

    def __init__(self, most: int) -> None:
        """Sets how many streams each caller may have."""
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Takes a slot while the context is open.

        Raises:
            LimitExceededError: TOO_MANY_SUBSCRIPTIONS.
        """
        actual = self._open[caller]
        if actual >= self._most:
            raise LimitExceededError(
                "TOO_MANY_SUBSCRIPTIONS",
                "the caller has as many streams open as it may",
                limit=self._most,
                actual=actual,
                limit_name="streams_per_caller",
            )
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]
