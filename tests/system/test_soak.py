"""Hundreds of sessions of every kind, after which nothing is left over."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.serving.assembly import Running
from orsay.serving.server import Server
from orsay.settings import Settings
from orsay_protocol.faults import FAULT_CLASSES
from structlog.testing import capture_logs

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, children, is_running
from ..support.session_api import Api, api_for
from ..support.sockets import raw_request, send_and_vanish
from ..support.waiting import until

pytestmark = pytest.mark.process

SESSIONS = {"process": 300, "local": 200}
AT_ONCE = 40


async def play(api: Api, number: int, log: Log, *, deaths: bool) -> None:
    """One session of the kind that ``number`` says. A fault has a known class, and a stream has an end."""
    kind = number % 10
    spec = {"log": str(log.path)} if kind in (0, 3, 4) else {}
    if kind == 6:
        answer = await api.post(
            "/create", {"env_name": "scripted", "task_spec": {"constructor": "ValueError"}}
        )
        assert answer.status_code in (410, 500, 503)
        return
    if kind == 3:
        spec["setup"] = "wait:/nowhere"
    answer = await api.post(
        "/create", {"env_name": "scripted" if kind % 2 else "asyncscripted", "task_spec": spec}
    )
    if answer.status_code in (410, 503):  # its worker was killed just then
        return
    assert answer.status_code == 200, answer.text
    match kind:
        case 0:
            await api.get("/prompt")
            await settle(api, "add")
            await settle(api, "win")
        case 1:
            for how in ("ValueError", "SystemExit", "CancelledError"):
                await settle(api, "do", how=how)
                await settle(api, "do_async", how=how)
        case 2:
            body = {"name": "do_async", "input": {"how": "sleep:0.5"}}
            await send_and_vanish(str(api.http.base_url).rstrip("/"), raw_request("/call", api.sid, body))
        case 4:
            running = asyncio.ensure_future(settle(api, "second", gate="/nowhere"))
            await asyncio.sleep(0.02)
            await api.delete()
            await running
        case 5:
            await settle(api, "say", text="left to the reaper")
            return
        case 7:
            await settle(api, "limited", how="spin:1" if number % 150 == 57 else "sleep:0.4")
        case 8 if deaths and number % 60 == 8:
            await settle(api, "do", how="kill")
        case 9:
            reply = await api.call("fill", size=100_000)
            if reply.events and reply.events[-1].event == "end":
                again = await api.attach(reply.task_id)
                assert not again.events or again.events[-1].event in ("end", "error")
    await api.delete()


async def settle(api: Api, name: str, **arguments: Any) -> None:
    """Call and check that there is an answer, whatever it is."""
    reply = await api.call(name, **arguments)
    if reply.status == 200:
        assert reply.events[-1].event in ("end", "error")
        if reply.events[-1].event == "error":
            assert reply.fault in FAULT_CLASSES
    else:
        assert reply.status in (410, 500), reply.response.text


@asynccontextmanager
async def serving(runtime: str) -> AsyncIterator[Running]:
    settings = Settings(
        port=0,
        runtime=runtime,
        workers=2,
        idle_limit_s=1,
        client_grace_s=0.3,
        gone_memory_s=60,  # a player on a slow machine comes back late, to a session that is gone
        log_level="error",
    )
    targets = [f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:AsyncScripted"]
    async with Server(targets).running(settings) as found:
        yield found


@asynccontextmanager
async def logged() -> AsyncIterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def lost_with_its_worker(line: Mapping[str, Any]) -> bool:
    """A session that ended with its worker, or that was being opened or asked when that died."""
    if line["event"] == "session_ended":
        return "SIGKILL" in line["reason"]
    return line["event"] == "fault" and line["fault"] == "worker_lost" and "tool" not in line


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.conformance("I3", "I4", "L2", "L3", "L5")
@pytest.mark.parametrize("runtime", SESSIONS)
async def test_hundreds_of_sessions_leave_nothing_behind(runtime: str, log: Log) -> None:
    tasks, threads, files = len(asyncio.all_tasks()), threading.active_count(), descriptors()
    processes = set(children(os.getpid()))
    async with serving(runtime) as found, logged() as lines:
        sessions, stored = found.sessions, found.sessions.totals
        async with api_for(found.url) as api:
            await one_round(api, range(10), log, deaths=False)  # what is made once is there now
            await until(lambda: len(sessions) == 0)
            idle_tasks = len(asyncio.all_tasks())
            async with asyncio.timeout(110):
                await one_round(api, range(10, SESSIONS[runtime]), log, deaths=runtime == "process")
            await until(lambda: len(sessions) == 0)
            assert (stored.in_flight, stored.stored_bytes, stored.abandoned) == (0, 0, 0)
            with suppress(TimeoutError):  # connections that the client still closes
                await until(lambda: len(asyncio.all_tasks()) <= idle_tasks, timeout_s=5)
            assert len(asyncio.all_tasks()) <= idle_tasks + 1
            answer = await api.http.get("/health")
            assert answer.status_code == 200
            if runtime == "process":
                workers = set(children(os.getpid())) - processes
                await until(lambda: len(set(children(os.getpid())) - processes) == 2)
                for pid in workers:
                    with suppress(FileNotFoundError):
                        assert len(os.listdir(f"/proc/{pid}/fd")) < 30
        assert log.count("teardown") == log.count("gone")
        lost = [line for line in lines if lost_with_its_worker(line)]
        assert log.count("constructed") - log.count("teardown") <= len(lost)
    gc.collect()
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: set(children(os.getpid())) <= processes)
    await until(lambda: threading.active_count() <= threads + 1)
    await until(lambda: descriptors() <= files + 2)


async def one_round(api: Api, numbers: range, log: Log, *, deaths: bool) -> None:
    waiting = iter(numbers)

    async def player() -> None:
        for number in waiting:
            try:
                await play(api.other(), number, log, deaths=deaths)
            except httpx.TransportError as error:
                raise AssertionError(f"session {number}: the server broke a connection") from error

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(player())


@pytest.mark.conformance("I4")
async def test_workers_killed_again_and_again_are_replaced_every_time(tmp_path: Path) -> None:
    log = Log(tmp_path)
    others = set(children(os.getpid()))  # such as the fork servers of the tests

    def workers() -> set[int]:
        return set(children(os.getpid())) - others

    async with serving("process") as found, api_for(found.url) as api:
        for _ in range(5):
            for pid in workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(20):
                while True:
                    session = api.other()
                    answer = await session.post("/create", {"task_spec": {"log": str(log.path)}})
                    if answer.status_code == 200 and (await session.call("add")).status == 200:
                        break
        await until(lambda: sum(map(is_running, workers())) == 2)
