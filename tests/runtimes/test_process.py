"""What only the ``process`` runtime promises: author code may kill or block its process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from orsay.errors import Faulted, LoadError, Overloaded, Refused
from orsay.runtimes.base import OpenSession, TaskQuery
from orsay.runtimes.process.pool import ProcessRuntime
from structlog.testing import capture_logs

from ..support.author_log import Log
from ..support.environments import FILE
from ..support.runtime_session import RunningOperation, RuntimeSession, open_session
from ..support.runtimes import process_runtime, started
from ..support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]
DEATHS = {"os._exit": "exit code 7", "segfault": "SIGSEGV", "kill": "SIGKILL"}
SCRIPTED = [f"{FILE}:Scripted", f"{FILE}:AsyncScripted"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[ProcessRuntime]:
    """Two workers; each test may kill one, since a new one takes its place."""
    runtime = process_runtime(2, targets=SCRIPTED)
    async with started(runtime):
        yield runtime


async def pid_of(player: RuntimeSession) -> int:
    return int(await player.call("where").text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def close_all(*players: RuntimeSession) -> None:
    for player in players:
        try:
            await player.close()
        except Faulted as fault:
            assert fault.fault == "worker_lost"


async def two_apart(pool: ProcessRuntime, log: Log) -> tuple[RuntimeSession, RuntimeSession]:
    """Sessions in different workers; waits for the second worker if it still starts."""
    one = await open_session(pool, log=str(log.path))
    async with asyncio.timeout(15):
        while True:
            two = await open_session(pool)
            if await pid_of(one) != await pid_of(two):
                return one, two
            await two.close()
            await asyncio.sleep(0.02)


# a worker dies


@pytest.mark.conformance("I3", "I4")
@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("tool", ["do", "do_async"])
async def test_a_call_that_kills_its_worker_harms_no_other_worker(
    pool: ProcessRuntime, log: Log, tool: str, how: str
) -> None:
    doomed, other = await two_apart(pool, log)
    beside = doomed.call("second", gate=log.gate("never"))
    elsewhere = other.call("second", gate=log.gate("open"))
    await log.has("second+")
    fault = await doomed.call(tool, how=how).fault()
    assert fault.fault == "worker_lost" and DEATHS[how] in fault.message
    assert (await beside.fault()).fault == "worker_lost"
    assert await doomed.is_lost() == ("worker_lost", fault.message)
    new = await open_session(pool)  # at once, although the new worker still starts
    assert await new.call("say", text="new").text() == "new"
    log.open("open")
    assert await elsewhere.text() == "second"
    await close_all(doomed, other, new)


class Failing(RunningOperation):
    """An operation whose callback fails, after it noted the answer."""

    def done(self, value: Any, error: Faulted | Refused | None) -> None:
        super().done(value, error)
        raise RuntimeError("a callback failed")


@pytest.mark.parametrize("killed", [True, False])
async def test_a_callback_that_fails_keeps_no_other_from_its_answer(
    pool: ProcessRuntime, log: Log, killed: bool
) -> None:
    session = await open_session(pool, log=str(log.path))
    first = Failing()
    body = json.dumps({"name": "first", "input": {"gate": log.gate("both")}}).encode()
    with capture_logs() as lines:
        first.stop = session.handle.start("call", body, first.done, limit_s=20)
        second = session.call("second", gate=log.gate("both"))
        await log.has("first+")
        await log.has("second+")
        if killed:
            os.kill(await pid_of(session), signal.SIGKILL)
            assert (await first.fault()).fault == (await second.fault()).fault == "worker_lost"
            assert (await session.is_lost())[0] == "worker_lost"
        else:
            log.open("both")
            assert (await first.text(), await second.text()) == ("first", "second")
            assert await session.call("say", text="on").text() == "on"
    assert [line["event"] for line in lines].count("worker_callback_failed") == 1
    await close_all(session)


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("key", ["scripted", "asyncscripted"])
@pytest.mark.parametrize("hook", ["constructor", "setup", "prompt", "task_tools", "score", "teardown"])
async def test_a_hook_that_kills_its_worker_harms_no_other_worker(
    pool: ProcessRuntime, log: Log, key: str, hook: str
) -> None:
    _, other = await two_apart(pool, log)
    elsewhere = other.call("second", gate=log.gate("open"))
    faults: list[Faulted] = []
    try:
        doomed = await open_session(pool, key, ready=False, **dict[str, Any]({hook: "kill"}))
        if hook == "setup":
            await doomed.is_lost()
        elif hook in ("prompt", "task_tools"):
            await doomed.ready()
            faults.append(await doomed.start(hook).fault())  # type: ignore[arg-type]
        elif hook == "score":
            await doomed.ready()
            faults.append(await doomed.score(1).fault())
        else:
            await doomed.ready()
            await doomed.close()
    except Faulted as fault:
        faults.append(fault)
    assert all(fault.fault == "worker_lost" for fault in faults)
    assert bool(faults) == (hook != "setup")
    log.open("open")
    if not other.losses:  # they may have shared the worker
        assert await elsewhere.text() == "second"
    new = await open_session(pool)
    assert await new.call("say", text="new").text() == "new"
    await close_all(other, new)


@pytest.mark.conformance("I3")
async def test_running_out_of_memory_ends_the_call(pool: ProcessRuntime, log: Log) -> None:
    doomed, other = await two_apart(pool, log)
    pid = await pid_of(doomed)
    fault = await doomed.call("do", how="eat").fault()
    assert fault.fault in ("tool_error", "worker_lost")
    assert fault.fault == "worker_lost" or "MemoryError" in fault.message
    assert await other.call("say", text="fine").text() == "fine"
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)
    await doomed.is_lost()
    await close_all(doomed, other)


@pytest.mark.conformance("I4")
async def test_a_worker_killed_from_outside_is_replaced(pool: ProcessRuntime, log: Log) -> None:
    for _ in range(3):
        doomed, other = await two_apart(pool, log)
        pid = await pid_of(doomed)
        os.kill(pid, signal.SIGKILL)
        reason = (await doomed.is_lost())[1]
        assert reason == "the worker process was killed by SIGKILL"
        assert (await doomed.call("say", text="x").fault()).fault == "worker_lost"
        await close_all(doomed, other)
    one, two = await two_apart(pool, log)  # there are two again
    await close_all(one, two)


async def test_the_log_counts_a_session_that_was_being_closed_when_its_worker_died() -> None:
    async with started(process_runtime(1, targets=SCRIPTED)) as pool:
        doomed, idle = await open_session(pool, teardown="kill"), await open_session(pool)
        with capture_logs() as lines:
            with pytest.raises(Faulted):
                await doomed.close()
            await until(lambda: idle.losses)
        assert [line["sessions"] for line in lines if line["event"] == "worker_lost"] == [2]


# a worker is blocked


@pytest.mark.conformance("I2", "I3", "I5")
@pytest.mark.parametrize(("tool", "how"), [("limited_async", "spin"), ("limited", "hold_gil:30")])
async def test_a_worker_blocked_past_the_limit_is_killed_and_the_culprit_named(
    pool: ProcessRuntime, log: Log, tool: str, how: str
) -> None:
    blocking, other = await two_apart(pool, log)
    neighbours = []
    for _ in range(4):
        player = await open_session(pool, log=str(log.path))
        if await pid_of(player) == await pid_of(blocking):
            neighbours.append((player, player.call("second", gate=log.gate("never"))))
        else:
            await player.close()
    await log.has("second+", len(neighbours))
    blocked = blocking.call(tool, how=how, limit_s=0.3)
    assert await other.call("say", text="meanwhile").text() == "meanwhile"
    fault = await blocked.fault()
    assert fault.fault == "time_limit" and "blocked its worker" in fault.message
    assert neighbours
    for player, running in neighbours:
        lost = await running.fault()
        assert lost.fault == "worker_lost" and "another session" in lost.message
        assert (await player.is_lost())[0] == "worker_lost"
    await close_all(blocking, other, *(player for player, _ in neighbours))


@pytest.mark.conformance("I2", "I5")
async def test_a_setup_that_blocks_its_worker_is_ended_at_its_limit() -> None:
    async with started(process_runtime(1, targets=SCRIPTED, setup_limit_s=0.3)) as runtime:
        blocking = await open_session(runtime, "asyncscripted", ready=False, setup="block:30")
        error = await blocking.ready()
        assert isinstance(error, Faulted) and error.fault == "time_limit"
        new = await open_session(runtime)
        assert await new.call("say", text="new").text() == "new"
        await close_all(blocking, new)


@pytest.mark.conformance("I2")
async def test_a_blocked_worker_gets_no_new_sessions(pool: ProcessRuntime, log: Log) -> None:
    blocking, other = await two_apart(pool, log)
    pid = await pid_of(blocking)
    extra = [await open_session(pool) for _ in range(6)]
    blocking.call("do_async", how="block:30")
    others = [player for player in extra if await pid_within(player, 1.0) not in (pid, None)]
    assert others
    async with asyncio.timeout(10):
        while True:  # until the server has noticed
            try:
                async with asyncio.timeout(1.0):
                    first = await open_session(pool)
                break
            except TimeoutError:
                continue
    fresh = [first, *[await open_session(pool) for _ in range(8)]]
    assert pid not in [await pid_of(player) for player in fresh]
    os.kill(pid, signal.SIGKILL)
    await blocking.is_lost()
    await close_all(blocking, other, *extra, *fresh)


@pytest.mark.conformance("I2")
@pytest.mark.parametrize(("tool", "how"), [("do", "hold_gil:30"), ("do_async", "block:30")])
async def test_with_a_process_for_each_session_nothing_a_tool_does_delays_another(
    tool: str, how: str
) -> None:
    async with started(process_runtime(2, targets=SCRIPTED, sessions_per_worker=1)) as runtime:
        blocking, *others = [await open_session(runtime) for _ in range(4)]
        pids = [await pid_of(player) for player in (blocking, *others)]
        assert len(set(pids)) == 4
        blocked = blocking.call(tool, how=how)
        for _ in range(5):
            for player in others:
                assert await player.call("say", text="on").text() == "on"
        late = await open_session(runtime)
        assert await late.call("say", text="on").text() == "on"
        assert not blocked.ended, "the tool blocks no more, so that nothing was shown"
        os.kill(pids[0], signal.SIGKILL)
        await blocking.is_lost()
        await close_all(*others, late)


@pytest.mark.conformance("I2", "I6")
async def test_a_pool_that_may_not_grow_further_says_so_and_serves_again_when_there_is_room() -> None:
    runtime = process_runtime(1, targets=SCRIPTED, sessions_per_worker=2, max_workers=2)
    async with started(runtime):
        players = [await open_session(runtime) for _ in range(4)]
        assert len({await pid_of(player) for player in players}) == 2
        with pytest.raises(Overloaded, match="all 2 worker processes are taken"):
            await open_session(runtime)
        assert await runtime.tasks(TaskQuery(key="scripted", split="train", ask="count")) == b"3"
        await players.pop().close()
        players.append(await open_session(runtime))
        await close_all(*players)


async def pid_within(player: RuntimeSession, seconds: float) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            return await pid_of(player)
    except TimeoutError:
        return None


# workers come and go


async def test_a_worker_retires_after_its_number_of_sessions() -> None:
    async with started(process_runtime(1, targets=SCRIPTED, session_limit=2)) as runtime:
        players = [await open_session(runtime) for _ in range(5)]
        pids = [await pid_of(player) for player in players]
        assert pids[0] == pids[1] and pids[2] == pids[3] and len(set(pids)) == 3
        assert await players[0].call("say", text="goes on").text() == "goes on"
        await players[0].close()
        await players[1].close()
        await until(lambda: not is_alive(pids[0]))
        assert is_alive(pids[2])
        await close_all(*players[2:])


async def test_a_worker_above_its_memory_limit_gets_no_new_sessions() -> None:
    async with started(process_runtime(1, targets=SCRIPTED, memory_limit_bytes=256 << 20)) as runtime:
        heavy = await open_session(runtime)
        pid = int(await heavy.call("hold", mebibytes=300).text())
        fresh = heavy
        async with asyncio.timeout(15):
            while await pid_of(fresh) == pid:
                if fresh is not heavy:
                    await fresh.close()
                    await asyncio.sleep(0.05)
                fresh = await open_session(runtime)
        assert await heavy.call("say", text="goes on").text() == "goes on"
        await heavy.close()
        await until(lambda: not is_alive(pid))
        await fresh.close()


async def test_a_worker_full_of_calls_that_never_end_is_replaced() -> None:
    async with started(process_runtime(1, targets=SCRIPTED)) as runtime:
        players = [await open_session(runtime) for _ in range(9)]
        pid = await pid_of(players[0])
        calls = [player.call("limited", how="sleep:20") for player in players]
        for call in calls:
            assert (await call.fault()).fault == "time_limit"
        fresh = players[0]
        async with asyncio.timeout(15):
            while await pid_of(fresh) == pid:
                fresh = await open_session(runtime)
                players.append(fresh)
                await asyncio.sleep(0.05)
        await close_all(*players)


VERSION = """
from orsay import Environment, tool

class Versioned(Environment):
    splits = {{"train": [{{}}]}}

    def prompt(self) -> str:
        return "{version}"

    @tool
    def noop(self) -> str:
        return "{version}"
"""


async def test_reload_runs_new_code_in_new_sessions_only(tmp_path: Path) -> None:
    file = tmp_path / "versioned_env.py"
    file.write_text(textwrap.dedent(VERSION.format(version="one")))
    async with started(process_runtime(1, targets=[f"{file}:Versioned"])) as runtime:
        assert isinstance(runtime, ProcessRuntime)
        old = await open_session(runtime, "versioned")
        file.write_text(textwrap.dedent(VERSION.format(version="two, the second")))
        await runtime.reload()
        new = await open_session(runtime, "versioned")
        assert await new.call("noop").text() == "two, the second"
        assert await old.call("noop").text() == "one"
        file.write_text("this is no Python")
        await runtime.reload()
        newer = await open_session(runtime, "versioned")
        assert await newer.call("noop").text() == "two, the second"
        await close_all(old, new, newer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise RuntimeError('no licence')", "no licence"),
        ("import os; os._exit(4)", "exit code 4"),
        ("import nonsense_that_is_not_there", "nonsense_that_is_not_there"),
    ],
)
async def test_environments_that_do_not_load_stop_the_start(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "broken_env.py"
    file.write_text(text)
    runtime = process_runtime(2, targets=[str(file)])
    with pytest.raises(LoadError, match=expected):
        await runtime.start()


async def test_stop_ends_every_worker_even_a_blocked_one(log: Log) -> None:
    runtime = process_runtime(2, targets=SCRIPTED)
    await runtime.start()
    one, two = await two_apart(runtime, log)
    pids = [await pid_of(one), await pid_of(two)]
    running = one.call("do_async", how="block:60")
    await runtime.stop()
    assert not any(is_alive(pid) for pid in pids)
    assert (await running.fault()).fault in ("shutdown", "worker_lost")


async def test_two_environments_of_one_name_stop_the_start() -> None:
    with pytest.raises(LoadError, match="two environments are called 'versioned'"):
        await process_runtime(1, targets=[f"{FILE}:Scripted", *_twins()]).start()


def _twins() -> list[str]:
    folder = Path(__file__).parent / "twins"
    return [f"{folder / name}.py:Versioned" for name in ("left", "right")]


async def test_tasks_are_asked_of_a_worker_that_lives(pool: ProcessRuntime, log: Log) -> None:
    one, two = await two_apart(pool, log)
    os.kill(await pid_of(one), signal.SIGKILL)
    await one.is_lost()
    assert await pool.tasks(TaskQuery(key="scripted", split="train", ask="count")) == b"3"
    player = RuntimeSession()
    player.handle = await pool.open(OpenSession(key="scripted", split="train", index=1), player)
    await close_all(one, two, player)
