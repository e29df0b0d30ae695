"""Loads of a way to have sandboxes: times in ms, rates per second, counts of failures."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from .processes import ProcessTree, memory_of, parse_stat
from .sandbox_subjects import Commands, Failed, Orsay, Subject

__all__ = ["LOADS", "Size", "percentile"]

_FIVE_MB, _TEN_MB = 5_000_000, 10_000_000
_TASK = 'python3 -c "print(sum(i * i for i in range(200000)))"'
_ANSWER = b"2666646666700000\n"


@dataclass(frozen=True)
class Size:
    """How much of each load."""

    firsts: int = 15
    runs: int = 200
    rate_s: float = 5.0
    files: int = 10
    idle: int = 16
    working: int = 64
    churn: int = 500
    forks: int = 8
    settle_s: float = 1.0
    """Pause before each sandbox that is timed; before eight, and before commands and files, four of them.

    Spares are made in it: to start a container slows what runs beside it.
    """

    def quick(self) -> Size:
        return Size(firsts=3, runs=20, rate_s=1.0, files=2, idle=4, working=8, churn=16, forks=2)


def percentile(values: list[float], share: float) -> float:
    """By rank, of values in any order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _times(name: str, seconds: list[float]) -> dict[str, float]:
    ms = [1000 * each for each in seconds]
    return {f"{name}_ms": round(statistics.median(ms), 2), f"{name}_p95_ms": round(percentile(ms, 0.95), 2)}


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _lasting(subject: Subject) -> str:
    return await (subject.lasting() if isinstance(subject, Commands) else subject.first_answer())


async def first_answers(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """From the request to the answer of a first command, one after the other."""
    seconds = []
    for _ in range(size.firsts):
        await asyncio.sleep(size.settle_s)
        began = time.perf_counter()
        sid = await subject.first_answer()
        seconds.append(time.perf_counter() - began)
        await subject.delete(sid)
    return _times("first", seconds)


async def eight_at_once(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """Eight first answers at once: until the last of them."""
    seconds = []
    for _ in range(1 + size.firsts // 5):
        await asyncio.sleep(4 * size.settle_s)
        began = time.perf_counter()
        made = await asyncio.gather(*(subject.first_answer() for _ in range(8)))
        seconds.append(time.perf_counter() - began)
        await asyncio.gather(*map(subject.delete, made))
    return {"eight_ms": round(1000 * statistics.median(seconds), 1)}


async def commands(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """``true`` in one sandbox, one after the other, and in eight at once."""
    made = [await _lasting(subject) for _ in range(8)]
    await asyncio.sleep(4 * size.settle_s)
    count = size.runs if not isinstance(subject, Commands) else size.runs // 4
    seconds = [await _timed(subject.run(made[0], "true")) for _ in range(count)]
    until = time.perf_counter() + size.rate_s
    began = time.perf_counter()

    async def again(sid: str) -> int:
        done = 0
        while time.perf_counter() < until:
            await subject.run(sid, "true")
            done += 1
        return done

    total = sum(await asyncio.gather(*map(again, made)))
    rate = total / (time.perf_counter() - began)
    await asyncio.gather(*map(subject.delete, made))
    return {**_times("run", seconds), "runs_per_s": round(rate, 1)}


async def files(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """5 MB up and down."""
    sid, content = await _lasting(subject), os.urandom(_FIVE_MB)
    await asyncio.sleep(4 * size.settle_s)
    up = [await _timed(subject.upload(sid, "/root/up", content)) for _ in range(size.files)]
    down = []
    for _ in range(size.files):
        began = time.perf_counter()
        found = await subject.download(sid, "/root/up")
        down.append(time.perf_counter() - began)
        if found != content:
            raise Failed("what came down is not what went up")
    await subject.delete(sid)
    return {**_times("up", up), **_times("down", down)}


async def memory(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """KiB of each idle sandbox: of the server, of its processes, and of the engine's process above them."""
    await subject.delete(await _lasting(subject))
    await asyncio.sleep(3 * size.settle_s)
    before = 0 if tree is None else tree.memory().pss_kib
    made = [await _lasting(subject) for _ in range(size.idle)]
    await asyncio.sleep(size.settle_s)
    grown = 0 if tree is None else tree.memory().pss_kib - before
    outer = [pids[0] for sid in made if (pids := await subject.pids(sid))]
    inside = [memory_of(pid) for each in outer for pid in ProcessTree(each).pids()]
    shims = [memory_of(_parent(each)) for each in outer]
    await asyncio.gather(*map(subject.delete, made))
    count = len(made)
    return {
        "server_kib": round(max(0, grown) / count, 1),
        "agent_rss_kib": round(sum(each.rss_kib for each in inside) / count, 1),
        "agent_pss_kib": round(sum(each.pss_kib for each in inside) / count, 1),
        "shim_pss_kib": round(sum(each.pss_kib for each in shims) / count, 1),
    }


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return parse_stat(file.read()).parent


async def working(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """Many at once, each made, given five tasks in turn, and ended."""

    async def one() -> int:
        try:
            sid = await _lasting(subject)
            wrong = sum([await subject.run(sid, _TASK) != _ANSWER for _ in range(5)])
            await subject.delete(sid)
        except Failed:
            return 1
        return min(1, wrong)

    began = time.perf_counter()
    failures = sum(await asyncio.gather(*(one() for _ in range(size.working))))
    return {"working_s": round(time.perf_counter() - began, 1), "working_failures": failures}


async def churn(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """Many made, asked and ended, eight at a time; a fifth as many where docker's commands do it."""
    count = size.churn if isinstance(subject, Orsay) else size.churn // 5
    left, failures = count, 0

    async def work() -> None:
        nonlocal left, failures
        while left > 0:
            left -= 1
            try:
                sid = await _lasting(subject)
                await subject.run(sid, "true")
                await subject.delete(sid)
            except Failed:
                failures += 1

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(8)))
    took = time.perf_counter() - began
    return {"churn_per_s": round(count / took, 2), "churn_failures": failures}


async def forks(subject: Subject, size: Size, tree: ProcessTree | None) -> dict[str, float]:
    """A fork of a sandbox with 10 MB of changes, until it has answered."""
    sid = await _lasting(subject)
    await subject.run(sid, f"head -c {_TEN_MB} /dev/urandom > /root/changed")
    told = await subject.run(sid, "sha256sum /root/changed")
    await asyncio.sleep(4 * size.settle_s)
    seconds = []
    for _ in range(size.forks):
        began = time.perf_counter()
        other = await subject.fork(sid)
        seconds.append(time.perf_counter() - began)
        if await subject.run(other, "sha256sum /root/changed") != told:
            raise Failed("the fork has other files")
        await subject.delete(other)
    await subject.delete(sid)
    return _times("fork", seconds)


Load = Callable[[Subject, Size, ProcessTree | None], Awaitable[Mapping[str, float]]]
LOADS: dict[str, Load] = {
    "first": first_answers,
    "eight": eight_at_once,
    "commands": commands,
    "files": files,
    "forks": forks,
    "memory": memory,
    "working": working,
    "churn": churn,
}
