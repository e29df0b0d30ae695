"""Load generators over channels of any kind (closed loop, open loop, all at once), and their results."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from .processes import Clock
from .wire import Channel

T = TypeVar("T")
C = TypeVar("C", bound=Channel)
Result = dict[str, Any]  # what a run prints: one flat JSON object


@dataclass(slots=True)
class Answers:
    """Latencies of the right answers, and errors by kind."""

    seconds: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, seconds: float, error: str) -> None:
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
        else:
            self.seconds.append(seconds)

    def report(self) -> Result:
        return {**quantiles(self.seconds), "errors": self.errors, "error_count": sum(self.errors.values())}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and the worst, in milliseconds; empty for no answers."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    count = len(ordered)
    figures = {
        f"p{percent}_ms": round(ordered[min(count - 1, count * percent // 100)] * 1e3, 3)
        for percent in (50, 90, 99)
    }
    return {**figures, "max_ms": round(ordered[-1] * 1e3, 3)}


async def closed_loop(
    channels: Sequence[Channel],
    requests: Sequence[Sequence[bytes]],
    seconds: float,
    must: bytes,
    clock: Clock,
) -> Result:
    """Each channel cycles through its own requests, the next as soon as the last is answered."""
    answers = Answers()
    live = len(channels)
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turns: dict[Channel, tuple[Sequence[bytes], int]] = {}

    def done(channel: Channel, took: float, error: str, raw: bytes) -> None:
        nonlocal live
        answers.add(took, error)
        if channel.closed or time.perf_counter() >= stop_at:
            live -= 1
            if live == 0 and not finished.done():
                finished.set_result(None)
            return
        own, index = turns[channel]
        index = (index + 1) % len(own)
        turns[channel] = (own, index)
        channel.send(own[index], must)

    clock.start()
    stop_at = time.perf_counter() + seconds
    for channel, own in zip(channels, requests, strict=True):
        channel.done = done
        turns[channel] = (own, 0)
        channel.send(own[0], must)
    await asyncio.wait_for(finished, seconds + 60)
    return {**clock.stop(len(answers.seconds)), **answers.report()}


async def open_loop(
    channels: Sequence[C],
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    must: bytes,
    clock: Clock,
    *,
    another: Callable[[], Awaitable[C]] | None = None,
) -> Result:
    """Send at a constant rate, independent of the server; waits only without a free channel and `another`.

    `generator_late_ms` is the worst delay of a send that the generator itself caused.
    """
    answers = Answers()
    loop = asyncio.get_running_loop()
    idle: deque[Channel] = deque(channels)
    total = int(rate * seconds)
    sent = answered = added = 0
    late = 0.0
    finished: asyncio.Future[None] = loop.create_future()

    def done(channel: Channel, took: float, error: str, raw: bytes) -> None:
        nonlocal answered
        answers.add(took, error)
        answered += 1
        if not channel.closed:
            idle.append(channel)
        if answered >= total and not finished.done():
            finished.set_result(None)

    for channel in channels:
        channel.done = done
    clock.start()
    begin = loop.time()
    while sent < total:
        due = min(total, int((loop.time() - begin) * rate) + 1)
        if sent < due:
            late = max(late, loop.time() - begin - sent / rate)
        while sent < due:
            if not idle:
                if another is None:
                    break
                new = await another()
                new.done = done
                idle.append(new)
                added += 1
            idle.popleft().send(requests[sent % len(requests)], must)
            sent += 1
        await asyncio.sleep(max(0.0005, begin + sent / rate - loop.time()))
    try:
        await asyncio.wait_for(finished, 20)
    except TimeoutError:
        answers.errors["unanswered"] = total - answered
    return {
        **clock.stop(len(answers.seconds)),
        "offered_per_s": rate,
        **answers.report(),
        "generator_late_ms": round(late * 1e3, 1),
        "channels_added": added,
    }


async def all_at_once(
    channels: Sequence[Channel], requests: Sequence[bytes], must: bytes, clock: Clock, timeout_s: float
) -> Result:
    """One request per channel in the same instant; `wall_s` is until the last answer."""
    answers = Answers()
    left = len(channels)
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(channel: Channel, took: float, error: str, raw: bytes) -> None:
        nonlocal left
        answers.add(took, error)
        left -= 1
        if left == 0 and not finished.done():
            finished.set_result(None)

    for channel in channels:
        channel.done = done
    clock.start()
    for channel, request in zip(channels, requests, strict=True):
        channel.send(request, must)
    try:
        await asyncio.wait_for(finished, timeout_s)
    except TimeoutError:
        answers.errors["unanswered"] = left
    return {**clock.stop(len(answers.seconds)), **answers.report()}


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run on uvloop, without the garbage collector, whose pauses would count as the server's."""
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def run_mode(modes: Mapping[str, Callable[[], Awaitable[Result]]], options: argparse.Namespace) -> None:
    """Run the chosen mode on the chosen core, and print its result with mode and number of sessions."""
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})

    async def go() -> Result:
        return await modes[options.mode]()

    print(json.dumps({"mode": options.mode, "sessions": options.sessions, **run(go)}))
