"""The end of the server has a limit, and a shorter one counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from sagentry.server.lifecycle import MINIMUM_BUDGET, Drain

HOUR = timedelta(hours=1)


@pytest.mark.anyio
async def test_nothing_is_waited_for_once_the_work_is_done() -> None:
    async def work() -> None:
        pass

    drain = Drain(HOUR)
    drain.begin()

    with anyio.fail_after(5):
        assert await drain.finish(work())


@pytest.mark.anyio
async def test_work_that_does_not_end_is_cancelled_when_the_budget_is_shortened() -> None:
    begun, cancelled = anyio.Event(), anyio.Event()

    async def work() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def shorten() -> None:
        await begun.wait()
        drain.begin(MINIMUM_BUDGET)

    drain = Drain(HOUR)
    drain.begin()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shorten)
            assert not await drain.finish(work())

    assert cancelled.is_set()


@pytest.mark.anyio
async def test_what_goes_wrong_with_the_work_is_told() -> None:
    async def work() -> None:
        raise LookupError("lost")

    drain = Drain(HOUR)

    with pytest.raises(LookupError, match="lost"):
        await drain.finish(work())


@pytest.mark.anyio
async def test_a_second_request_never_makes_the_end_later() -> None:
    drain = Drain(timedelta(minutes=1))

    first = drain.begin()
    second = drain.begin(HOUR)

    assert abs(first - second) < timedelta(seconds=1)


@pytest.mark.anyio
async def test_an_end_at_once_leaves_time_for_answers_under_way() -> None:
    drain = Drain(HOUR)

    end = drain.begin(timedelta(0))

    assert end > datetime.now(UTC)
