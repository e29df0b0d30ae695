"""The outcome of a call that failed, kept for retries, without what the tool held."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from orsay import Environment, tool

from tests.support.sessions import local_runtime, make_sessions, request_of

HELD: list[weakref.ref[Held]] = []


class Held:
    """An object that a tool has in a local variable."""

    def __init__(self) -> None:
        HELD.append(weakref.ref(self))


class Failing(Environment):
    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "Fail."

    @tool
    def raises(self) -> str:
        held = Held()
        raise ValueError(f"no {type(held).__name__}")

    @tool
    async def raises_later(self) -> str:
        held = Held()
        await asyncio.sleep(0)
        raise ValueError(f"no {type(held).__name__}")

    @tool
    def raises_again(self) -> str:
        held = Held()
        try:
            raise KeyError(type(held).__name__)
        except KeyError as exc:
            raise RuntimeError("no") from exc

    @tool(time_limit_s=0.05)
    async def hangs(self) -> str:
        held = Held()
        await asyncio.sleep(60)
        return type(held).__name__

    @tool
    async def returns_too_much(self) -> str:
        held = Held()
        return type(held).__name__ * 100_000


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Objects go when nothing refers to them, or not at all."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("raises", "tool_error"),
        ("raises_later", "tool_error"),
        ("raises_again", "tool_error"),
        ("hangs", "time_limit"),
        ("returns_too_much", "result_too_large"),
    ],
)
async def test_a_stored_fault_keeps_nothing_of_its_tool(name: str, fault: str) -> None:
    runtime = local_runtime(Failing)
    await runtime.start()
    sessions = make_sessions(runtime)
    info = runtime.environments[0]
    session = await sessions.create("a", "", info, request_of(info))
    body = b'{"name": "%s", "input": {}}' % name.encode()
    HELD.clear()
    call = session.start_call(await session.ready(), "call", name, body, None)
    async with asyncio.timeout(10):
        while call.outcome is None:
            await asyncio.sleep(0.01)
    for _ in range(100):  # a thread of the tool lets go of it a moment later
        if HELD[0]() is None:
            break
        await asyncio.sleep(0.01)
    assert session.attach(call.task_id, "call") is call
    assert call.outcome.fault is not None and call.outcome.fault.fault == fault
    assert HELD[0]() is None
    await sessions.close_all()
    await runtime.stop()
