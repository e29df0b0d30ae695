from __future__ import annotations

import asyncio
import socket
import time

from orsay.runtimes.execution.event_loop import new_event_loop
from orsay.sessions.timers import Delay


async def test_a_future_is_done_after_the_delay_or_before() -> None:
    delay = Delay(0.05)
    began = time.monotonic()
    late, early = delay.future(), delay.future()
    early.set_result(None)
    async with asyncio.timeout(10):
        await late
    assert time.monotonic() - began >= 0.04


def test_what_came_while_the_loop_was_blocked_is_read_before_a_wait_ends() -> None:
    ours, theirs = socket.socketpair()

    async def main() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()

        def read() -> None:
            ours.recv(1)
            seen.append("read")

        loop.add_reader(ours, read)
        future = Delay(0.02).future()
        future.add_done_callback(lambda _: seen.append("ended"))
        loop.call_soon(theirs.send, b"x")
        loop.call_soon(time.sleep, 0.1)
        async with asyncio.timeout(10):
            await future
        await asyncio.sleep(0)
        loop.remove_reader(ours)
        return seen

    with ours, theirs, asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(main()) == ["read", "ended"]
