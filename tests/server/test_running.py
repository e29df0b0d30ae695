from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from orsay.errors import Faulted
from orsay.runtimes.execution.runs import Group, Run, Runs


class Answer:
    def __init__(self) -> None:
        self.answers: list[tuple[Any, Any]] = []
        self.came = asyncio.Event()

    def __call__(self, value: Any, error: Any) -> None:
        self.answers.append((value, error))
        self.came.set()

    async def fault(self) -> str:
        async with asyncio.timeout(10):
            await self.came.wait()
        assert len(self.answers) == 1
        error = self.answers[0][1]
        assert isinstance(error, Faulted)
        return error.fault


async def test_a_run_answers_with_its_value() -> None:
    runs = Runs()

    async def body(_: Run) -> int:
        return 5

    assert await runs.run(body, limit_s=5, what="it") == 5
    assert len(runs) == 0
    runs.close()


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_what_escapes_a_run_is_an_internal_fault_and_not_the_end_of_the_loop(
    error: type[BaseException],
) -> None:
    runs, answer = Runs(), Answer()

    async def body(_: Run) -> None:
        raise error

    runs.start(body, answer, limit_s=5, what="it")
    assert await answer.fault() == "internal"
    runs.close()


@pytest.mark.conformance("I5")
async def test_a_run_is_stopped_at_its_limit_and_answered_without_it_when_it_will_not_end() -> None:
    runs, answer, mercy = Runs(), Answer(), asyncio.Event()

    async def stubborn(_: Run) -> None:
        while not mercy.is_set():
            try:
                await mercy.wait()
            except asyncio.CancelledError:
                continue

    runs.start(stubborn, answer, limit_s=0.05, what="it")
    assert await answer.fault() == "time_limit"
    assert runs.stuck == 1 and len(runs) == 1
    mercy.set()
    async with asyncio.timeout(5):
        while len(runs):
            await asyncio.sleep(0.01)
    assert runs.stuck == 0
    assert len(answer.answers) == 1
    runs.close()


async def test_a_run_stopped_before_it_began_is_answered() -> None:
    runs, answer = Runs(), Answer()

    async def body(_: Run) -> None:
        raise AssertionError("must not run")

    run = runs.start(body, answer, limit_s=5, what="it")
    run.stop(Faulted("cancelled", "at once"))
    run.stop(Faulted("cancelled", "and again"))
    assert await answer.fault() == "cancelled"
    runs.close()


async def test_while_the_clock_is_stopped_no_limit_is_reached() -> None:
    runs, answer = Runs(), Answer()

    async def body(run: Run) -> str:
        run.stop_clock()
        await asyncio.sleep(0.4)
        run.restart_clock()
        return "waited"

    runs.start(body, answer, limit_s=0.1, what="it")
    async with asyncio.timeout(5):
        await answer.came.wait()
    assert answer.answers == [("waited", None)]
    runs.close()


async def test_a_group_stops_together() -> None:
    runs, answers = Runs(), [Answer() for _ in range(3)]
    group = Group(runs)

    async def body(_: Run) -> None:
        await asyncio.Event().wait()

    for answer in answers:
        runs.start(body, answer, limit_s=5, what="it", group=group)
    await asyncio.sleep(0)
    assert group.running == 3
    await group.stop(Faulted("cancelled", "over"))
    assert group.running == 0 and [await answer.fault() for answer in answers] == ["cancelled"] * 3
    runs.close()


async def test_a_run_reports_once_that_it_takes_long() -> None:
    runs, answer, gate = Runs(slow_after_s=0.01), Answer(), asyncio.Event()
    reported = asyncio.Event()
    reports: list[bytes] = []

    async def body(_: Run) -> None:
        await gate.wait()

    def progress(events: bytes) -> None:
        reports.append(events)
        reported.set()

    runs.start(body, answer, limit_s=5, what="it", progress=progress)
    async with asyncio.timeout(10):
        await reported.wait()
    assert len(runs) == 1 and not answer.answers
    await asyncio.sleep(0.1)
    gate.set()
    async with asyncio.timeout(10):
        await answer.came.wait()
    assert reports == [b""] and len(runs) == 0
    runs.close()


async def test_a_slow_run_keeps_its_limit() -> None:
    runs, answer = Runs(slow_after_s=0.001), Answer()

    async def body(_: Run) -> None:
        await asyncio.Event().wait()

    runs.start(body, answer, limit_s=0.3, what="it")
    assert await answer.fault() == "time_limit"
    assert len(runs) == 0
    runs.close()


async def test_time_for_which_the_event_loop_is_blocked_does_not_make_a_run_slow() -> None:
    runs, answer = Runs(slow_after_s=0.1), Answer()
    reports: list[bytes] = []

    async def body(_: Run) -> None:
        for _times in range(2):
            asyncio.get_running_loop().call_soon(time.sleep, 0.2)
            await asyncio.sleep(0.001)

    runs.start(body, answer, limit_s=5, what="it", progress=reports.append)
    async with asyncio.timeout(10):
        await answer.came.wait()
    assert answer.answers == [(None, None)] and reports == []
    runs.close()
