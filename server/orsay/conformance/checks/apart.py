"""Promises about concurrent sessions: none waits for another, and a call ends with its session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio

from orsay.conformance.check import promise
from orsay.conformance.failures import Failed, expect
from orsay.conformance.target import Target, TargetSession

_SHORT_S, _LONG_S = 1, 8
_BEGIN_S = 0.5
_STOP_S = 10.0


@promise(
    "I1", "others-go-on", "While a tool of one session runs, other sessions, /ping and /health are answered."
)
async def others_go_on(target: Target) -> None:
    # On a busy machine one second may be too short.
    for seconds in (_SHORT_S, _LONG_S):
        async with target.session() as session, _running(session, seconds) as call:
            await _play_beside(target, session)
            if not call.done():
                return
    raise Failed(f"other sessions and /ping waited until a tool of one session had run for {seconds} s")


@contextlib.asynccontextmanager
async def _running(session: TargetSession, seconds: int) -> AsyncIterator[asyncio.Task[None]]:
    """A running call of that duration, whose stream has begun."""
    waiting = await session.target.probe.waiting()
    began = asyncio.Event()
    # httpcore shields the closing of other connections from a scope of anyio, not from ``Task.cancel``.
    reading = anyio.CancelScope()

    async def read() -> None:
        with reading:
            async with session.open_stream(waiting.tool, waiting.taking(seconds)) as answer:
                async for _ in answer.aiter_raw():
                    began.set()

    task = asyncio.create_task(read())
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(began.wait(), _BEGIN_S)
        yield task
    finally:
        reading.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _play_beside(target: Target, session: TargetSession) -> None:
    name, value = await target.probe.working()
    expect((await target.get("/health")).status_code == 200, "/health does not answer 200")
    expect((await session.post("/ping")).status_code == 200, "its own /ping does not answer 200")
    async with target.session() as other:
        expect((await other.get(target.path("/prompt"))).status_code == 200, "a prompt does not answer 200")
        expect((await other.call(name, value)).result.get("ok") is True, "another session's call is refused")


@promise("L2", "delete-during-call", "A call that runs when its session is deleted is ended with it.")
async def delete_during_call(target: Target) -> None:
    async with target.session() as session, _running(session, 25) as call:
        async with asyncio.timeout(_STOP_S):
            expect((await session.post("/delete")).status_code == 200, "/delete does not answer 200")
            expect((await session.post("/ping")).status_code in (404, 410), "the session is still there")
        done, _ = await asyncio.wait({call}, timeout=_STOP_S)
        expect(done, f"its stream is open {_STOP_S:.0f} s after /delete answered")
