from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from orsay.authoring.tools import ToolRow
from orsay.runtimes.execution.tool_lock import ToolLock


def row(name: str, *, concurrent: bool = False, exclusive: bool = False) -> ToolRow:
    return ToolRow(
        name=name,
        description="",
        input_schema=None,
        owner=None,
        function=print,
        shared=True,
        concurrent=concurrent,
        exclusive=exclusive,
        terminal=False,
        detached=False,
        time_limit_s=None,
        is_async=True,
    )


ROWS = [row("one"), row("two"), row("free", concurrent=True), row("alone", exclusive=True)]


async def test_a_cancelled_wait_leaves_the_queue_and_lets_others_go_on() -> None:
    lock = ToolLock()
    assert lock.try_enter(ROWS[0])
    alone = asyncio.ensure_future(lock.enter(ROWS[3]))
    late = asyncio.ensure_future(lock.enter(ROWS[1]))
    await asyncio.sleep(0)
    assert not late.done()
    alone.cancel()
    await asyncio.wait([alone, late], timeout=5)
    assert alone.cancelled() and late.done() and not late.cancelled()


async def test_a_wait_cancelled_when_it_is_admitted_gives_its_place_back() -> None:
    lock = ToolLock()
    lock.try_enter(ROWS[0])
    waiting = asyncio.ensure_future(lock.enter(ROWS[0]))
    await asyncio.sleep(0)
    lock.leave(ROWS[0])  # admits
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert lock.try_enter(ROWS[3]), "nothing runs any more"


ACTIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=40)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(actions=ACTIONS)
def test_no_order_of_events_breaks_the_rules_or_loses_a_call(actions: list[tuple[int, int, bool]]) -> None:
    asyncio.run(interleave(actions))


async def interleave(actions: list[tuple[int, int, bool]]) -> None:
    lock, running, calls = ToolLock(), [], []

    async def call(which: ToolRow) -> None:
        if not lock.try_enter(which):
            await lock.enter(which)
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running.append((which, end))
        check(running)
        try:
            await end
        finally:
            running.remove((which, end))
            lock.leave(which)

    for kind, pick, cancel in actions:
        calls.append(asyncio.ensure_future(call(ROWS[kind])))
        if cancel:
            calls[pick % len(calls)].cancel()
        await asyncio.sleep(0)
        if running and pick % 2:
            end: Any = running[pick % len(running)][1]
            if not end.done():
                end.set_result(None)
            await asyncio.sleep(0)
        check(running)
    async with asyncio.timeout(10):
        while not all(each.done() for each in calls):
            for _, end in list(running):
                if not end.done():
                    end.set_result(None)
            await asyncio.sleep(0)
    await asyncio.gather(*calls, return_exceptions=True)
    assert lock.try_enter(ROWS[3]), "all have left"


def check(running: list[tuple[ToolRow, Any]]) -> None:
    names = [which.name for which, _ in running if not which.concurrent]
    assert len(set(names)) == len(names)
    assert len(running) == 1 or not any(which.exclusive for which, _ in running)
