from __future__ import annotations

import asyncio
import threading
import time

import pytest
from orsay.errors import Overloaded
from orsay.runtimes.execution.threads import Threads


async def until_idle(threads: Threads) -> None:
    async with asyncio.timeout(10):
        while threads.busy:
            await asyncio.sleep(0.005)


async def test_a_function_runs_on_a_thread_and_its_value_comes_back() -> None:
    threads = Threads(2)
    assert await threads.run(lambda a, b: (a + b, threading.current_thread().name), 1, b=2) == (
        3,
        "orsay-author",
    )
    threads.close()


async def test_threads_are_used_again_and_end_when_idle_for_long() -> None:
    threads = Threads(10, idle_s=0.05)
    for _ in range(5):
        await threads.run(time.sleep, 0)
    assert threads.count == 1
    async with asyncio.timeout(5):
        while threads.count:
            await asyncio.sleep(0.01)
    assert await threads.run(lambda: "again") == "again"
    threads.close()


@pytest.mark.conformance("I1", "I6")
async def test_a_full_pool_refuses_and_does_not_queue() -> None:
    threads = Threads(2)
    gate = threading.Event()
    waits = [asyncio.ensure_future(threads.run(gate.wait, 10)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="all 2 threads"):
        await threads.run(time.sleep, 0)
    gate.set()
    await asyncio.gather(*waits)
    assert await threads.run(lambda: 1) == 1
    threads.close()


@pytest.mark.conformance("I3")
@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, ValueError]
)
async def test_whatever_a_function_raises_comes_back(error: type[BaseException]) -> None:
    threads = Threads(1)

    def fail() -> None:
        raise error

    with pytest.raises(error):
        await threads.run(fail)
    assert await threads.run(lambda: "alive") == "alive"
    threads.close()


async def test_stop_iteration_comes_back_as_an_error_that_a_future_can_hold() -> None:
    threads = Threads(1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(next, iter(()))
    threads.close()


@pytest.mark.conformance("I5")
async def test_a_cancelled_wait_interrupts_the_function_and_ends_with_it() -> None:
    threads = Threads(1)
    started, ended = threading.Event(), []

    def spin() -> None:
        started.set()
        try:
            while True:
                pass
        finally:
            ended.append(True)

    waiting = asyncio.ensure_future(threads.run(spin))
    await asyncio.to_thread(started.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True]
    assert await threads.run(lambda: "the interrupt hit nobody else") == "the interrupt hit nobody else"
    threads.close()


async def test_a_function_cancelled_before_its_thread_got_to_it_never_runs() -> None:
    threads = Threads(1)
    ran: list[int] = []
    for _ in range(50):
        waiting = asyncio.ensure_future(threads.run(ran.append, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(5):  # it ended although the wait was cancelled at any moment of it
            await asyncio.gather(waiting, return_exceptions=True)
        await until_idle(threads)
    threads.close()


async def test_a_wait_cancelled_just_as_the_function_ends_ends_too() -> None:
    threads = Threads(1)
    for step in range(100):
        waiting = asyncio.ensure_future(threads.run(time.sleep, 0))
        await asyncio.sleep(step / 200_000)
        waiting.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(waiting, return_exceptions=True)
        await until_idle(threads)
    threads.close()


async def test_closing_ends_all_threads() -> None:
    before = threading.active_count()
    threads = Threads(3)
    gate = threading.Event()
    waiting = asyncio.ensure_future(threads.run(gate.wait, 10))
    await threads.run(time.sleep, 0)
    threads.close()
    gate.set()
    await waiting
    async with asyncio.timeout(5):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)
    assert threads.count == 0


async def test_a_function_may_have_a_parameter_called_function() -> None:
    threads = Threads(1)
    assert await threads.run(lambda function: function, function="f") == "f"
    threads.close()
