"""Repeated requests for a running call: it runs once, and all answers are of that one run.

A call that is repeated late in its run is answered when that run ends; a second run would take the full
duration from there. Timing alone proves nothing on a busy machine: a suspicion is checked again with a longer
call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

from orsay_protocol.sse import Decoder

from orsay.conformance.failures import Failed, NotSupported, expect
from orsay.conformance.probe import Waiting
from orsay.conformance.target import Reply, Target, TargetSession

__all__ = ["expect_one_run"]

_LONG_S = 3
_SLOW_S = 1.0
_LATE = 0.8
"""Share of its duration after which a call is repeated."""


async def expect_one_run(target: Target, headers: Mapping[str, str] | None, *, attach: bool) -> None:
    """Repeat a running call of the waiting tool.

    With ``attach``: by its task id, while the first connection is open; else by the same request with the
    same headers, after the first connection broke.

    Raises Failed unless it runs once, and NotSupported if it was never observed running.
    """
    waiting = await target.probe.waiting()
    why = ""
    # The tool's overhead counts for a second run too.
    slow_s = max(0.0, waiting.took_s - waiting.seconds - _SLOW_S)
    for seconds in (waiting.seconds, _LONG_S):
        async with target.session() as session:
            await session.get(target.path("/prompt"))
            asked_s, answered_s = await _asked_again(session, waiting, seconds, headers, attach=attach)
        if asked_s < seconds and answered_s < asked_s + seconds + slow_s:
            return
        why = (
            f"of {seconds:g} s, asked for again after {asked_s:.2f} s, was answered after {answered_s:.2f} s"
        )
    if asked_s >= seconds:
        raise NotSupported(f"no call of {waiting.tool} was seen running: its answer begins when it is done")
    twice = await target.probe.takes_twice()
    if twice is not None:
        raise NotSupported(f"{twice}: the duration of a call cannot be predicted")
    raise Failed(f"a call of {waiting.tool} {why}: it runs again from there")


async def _asked_again(
    session: TargetSession,
    waiting: Waiting,
    seconds: float,
    headers: Mapping[str, str] | None,
    *,
    attach: bool,
) -> tuple[float, float]:
    """Times of the repeated request and of its answer, in seconds from the first request."""
    value = waiting.taking(seconds)
    begun = time.monotonic()
    async with session.open_stream(waiting.tool, value, headers) as answer:
        first = b""
        async with aclosing(cast("AsyncGenerator[bytes]", answer.aiter_bytes())) as chunks:
            async for chunk in chunks:
                first += chunk
                if _reply(answer, first).events:
                    break
            task_id = _reply(answer, first).task_id
            if attach:
                await _until(begun + _LATE * seconds)
                asked = time.monotonic()
                again = await session.call(waiting.tool, value, task_id=task_id)
                answered = time.monotonic()
                async for chunk in chunks:
                    first += chunk
    if not attach:
        await _until(begun + _LATE * seconds)
        asked = time.monotonic()
        again = await session.call(waiting.tool, value, headers=headers)
        answered = time.monotonic()
    expect(again.raised is None, f"while the call runs, asking for it again gives {again.raised!r}")
    expect(again.task_id == task_id, f"asked for again while it runs, it is {again.task_id}, not {task_id}")
    expect(again.result.get("ok") is True, f"asked for again while it runs, it gives {again.result!r:.200}")
    if attach:
        result = _reply(answer, first).result
        expect(again.result == result, f"a reader got {again.result!r:.200}, the caller {result!r:.200}")
    return asked - begun, answered - begun


def _reply(answer: Any, body: bytes) -> Reply:
    return Reply(answer.status_code, answer.headers, body, Decoder().feed(body))


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
