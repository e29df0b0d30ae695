"""Counting sessions, and the streams that report them, without a server around them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from orsay.console.live import Feed, count
from orsay.errors import Faulted, SessionGone
from orsay.faults import FaultLog
from orsay.sessions.session import Session

from tests.support.sessions import environment_info, make_shared

from .api import LIMIT_S

INFO = environment_info()


def sessions(number: int, *owners: str) -> dict[tuple[str, str], Session]:
    """Sessions in turn of each owner, all of them being opened."""
    shared = make_shared()
    made = (Session(shared, f"s{at}", owners[at % len(owners)], INFO, b"") for at in range(number))
    return {session.key: session for session in made}


def rates() -> tuple[float, float, float | None, float | None, float | None]:
    return 12.5, 0.5, 1.0, 2.0, 3.0


async def test_fifty_thousand_sessions_are_counted_while_other_work_goes_on() -> None:
    live = sessions(50_000, "a", "b")
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    work = asyncio.create_task(other_work())
    tally = await count(live, ["a"])
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert turns >= 50
    assert tally.states == {("a", "opening"): 25_000, ("b", "opening"): 25_000}
    assert tally.environments["a", "rooms"] == 25_000
    newest = [session.sid for session in tally.newest["a"]]
    assert newest == [f"s{at}" for at in range(49_998, 49_998 - 400, -2)]
    assert set(tally.newest) == {"a"}


async def test_sessions_that_come_and_go_while_they_are_counted_do_no_harm() -> None:
    live = sessions(5_000, "")

    async def disturb() -> None:
        for session in list(live.values())[:4_000]:
            session.end(SessionGone("over"), "deleted")
            del live[session.key]
            await asyncio.sleep(0)

    tally, _ = await asyncio.gather(count(live, [""]), disturb())
    assert 1_000 <= tally.states["", "opening"] <= 5_000


async def test_a_snapshot_is_of_the_sessions_of_one_owner() -> None:
    live = sessions(3, "a", "b")
    live["a", "s0"].setup_ended(None)
    feed = Feed(live, rates)
    async with asyncio.timeout(LIMIT_S):
        with feed.listening("a") as a, feed.listening("b") as b, feed.listening("c") as c:
            found = [json.loads(await each.next() or b"") for each in (a, b, c)]
    await feed.close()
    assert [[each["sid"] for each in snapshot["list"]] for snapshot in found] == [["s2", "s0"], ["s1"], []]
    assert found[0]["sessions"] == {"opening": 1, "starting": 0, "ready": 1, "failed": 0, "closing": 0}
    assert [snapshot["total"] for snapshot in found] == [2, 1, 0]
    assert found[2]["calls_per_s"] == 12.5 and found[2]["faults_per_s"] == 0.5
    assert found[2]["latency_ms"] == {"p50": 1.0, "p95": 2.0, "p99": 3.0}


async def test_nothing_is_counted_while_nobody_listens() -> None:
    looked = 0

    def asked() -> tuple[float, float, float | None, float | None, float | None]:
        nonlocal looked
        looked += 1
        return rates()

    feed = Feed(sessions(1, ""), asked)
    async with asyncio.timeout(LIMIT_S):
        for _ in range(2):
            with feed.listening("") as listener:
                assert await listener.next() is not None
            while len(asyncio.all_tasks()) > 1:  # the one that counts ends by itself
                await asyncio.sleep(0.01)
    assert looked == 2
    await feed.close()


async def test_closing_ends_every_stream_and_new_ones_at_once() -> None:
    feed = Feed(sessions(1, ""), rates)
    async with asyncio.timeout(LIMIT_S):
        with feed.listening("") as listener:
            assert await listener.next() is not None
            waiting = asyncio.create_task(_rest(listener))
            await feed.close()
            await waiting
        with feed.listening("") as late:
            assert await late.next() is None
    assert feed.closed and len(asyncio.all_tasks()) == 1


async def _rest(listener: Any) -> None:
    while await listener.next() is not None:
        pass


async def test_a_snapshot_that_fails_does_not_end_the_streams(capfd: pytest.CaptureFixture[str]) -> None:
    answers = [ZeroDivisionError("no calls")]

    def sometimes() -> tuple[float, float, float | None, float | None, float | None]:
        if answers:
            raise answers.pop()
        return rates()

    feed = Feed(sessions(1, ""), sometimes)
    async with asyncio.timeout(LIMIT_S):
        with feed.listening("") as listener:
            assert await listener.next() is not None
    await feed.close()
    assert "snapshot_failed" in capfd.readouterr().out


def test_a_fault_is_reported_to_all_who_listen_and_once() -> None:
    log = FaultLog(show=False)
    received: list[tuple[Faulted, dict[str, Any]]] = []
    log.listen(lambda fault, context: received.append((fault, context)))
    fault = Faulted("tool_error", "a secret reason")
    log.report(fault, session="s", environment="e")
    log.report(fault, session="s", environment="e")
    log.report(Faulted("unknown_task_id", "unknown task_id"))
    assert received == [(fault, {"session": "s", "environment": "e"})]
