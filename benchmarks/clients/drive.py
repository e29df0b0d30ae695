"""Plays sessions through one client library on one event loop, and prints its CPU time per call.

python drive.py orsay http://127.0.0.1:8080 --sessions 256 --seconds 5

Runs under the interpreter that has the library; prints one JSON object. Kinds: orsay, openreward, aiohttp and
httpx (the last two by hand: one POST and a search in its answer, the minimum for a client).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

ENV = "echoenvironment"
INPUT = {"text": "hello"}
OPEN_AT_ONCE = 32
Call = Callable[[], Awaitable[bool]]


@asynccontextmanager
async def orsay(url: str, sessions: int) -> AsyncIterator[list[Call]]:
    client_class: Any = importlib.import_module("orsay_client").AsyncClient
    async with client_class(url) as client, AsyncExitStack() as stack:
        environment = client.environment(ENV)

        def bound(session: Any) -> Call:
            async def call() -> bool:
                return bool((await session.call("echo", INPUT)).blocks[0].text == "hello")

            return call

        yield [
            bound(s)
            for s in await opened(stack, sessions, lambda: environment.session(split="train", index=0))
        ]


@asynccontextmanager
async def openreward(url: str, sessions: int) -> AsyncIterator[list[Call]]:
    client: Any = importlib.import_module("openreward").AsyncOpenReward(api_key="")
    environment = client.environments.get(ENV, base_url=url)

    def bound(session: Any) -> Call:
        async def call() -> bool:
            return bool((await session.call_tool("echo", INPUT)).blocks[0].text == "hello")

        return call

    async with AsyncExitStack() as stack:
        yield [
            bound(s)
            for s in await opened(stack, sessions, lambda: environment.session(split="train", index=0))
        ]
    for pool in client.environments._clients.values():
        await pool.close()


async def opened(stack: AsyncExitStack, count: int, make: Callable[[], Any]) -> list[Any]:
    limit = asyncio.Semaphore(OPEN_AT_ONCE)

    async def one() -> Any:
        async with limit:
            return await stack.enter_async_context(make())

    return list(await asyncio.gather(*(one() for _ in range(count))))


Post = Callable[[str, str, dict[str, Any]], Awaitable[bytes]]


async def by_hand(post: Post, sessions: int) -> list[Call]:
    sids = [uuid.uuid4().hex for _ in range(sessions)]
    for sid in sids:
        await post("/create", sid, {"env_name": ENV, "split": "train", "index": 0})

    def bound(sid: str) -> Call:
        async def call() -> bool:
            return b'"text":"hello"' in await post(f"/{ENV}/call", sid, {"name": "echo", "input": INPUT})

        return call

    return [bound(sid) for sid in sids]


@asynccontextmanager
async def aiohttp(url: str, sessions: int) -> AsyncIterator[list[Call]]:
    module: Any = importlib.import_module("aiohttp")
    async with module.ClientSession(url, connector=module.TCPConnector(limit=0)) as pool:

        async def post(path: str, sid: str, body: dict[str, Any]) -> bytes:
            async with pool.post(path, json=body, headers={"X-Session-ID": sid}) as answer:
                return bytes(await answer.read())

        yield await by_hand(post, sessions)


@asynccontextmanager
async def httpx(url: str, sessions: int) -> AsyncIterator[list[Call]]:
    module: Any = importlib.import_module("httpx")
    limits = module.Limits(max_connections=None, max_keepalive_connections=None)
    async with module.AsyncClient(base_url=url, limits=limits, timeout=120) as pool:

        async def post(path: str, sid: str, body: dict[str, Any]) -> bytes:
            return bytes((await pool.post(path, json=body, headers={"X-Session-ID": sid})).content)

        yield await by_hand(post, sessions)


KINDS = {"orsay": orsay, "openreward": openreward, "aiohttp": aiohttp, "httpx": httpx}


async def play(calls: list[Call], seconds: float) -> dict[str, Any]:
    """Every session calls as often as it can; a call that fails ends its session and is counted."""
    latencies: list[float] = []
    errors: dict[str, int] = {}
    stop_at = time.perf_counter() + seconds

    async def player(call: Call) -> None:
        while (begin := time.perf_counter()) < stop_at:
            try:
                right = await call()
            except Exception as error:  # of whichever library is measured
                errors[repr(error)[:100]] = errors.get(repr(error)[:100], 0) + 1
                return
            if not right:
                errors["body"] = errors.get("body", 0) + 1
            latencies.append(time.perf_counter() - begin)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(player(call) for call in calls))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    latencies.sort()
    count = len(latencies)
    return {
        "n": count,
        "cpu_us_per_call": round(cpu / max(1, count) * 1e6, 1),
        "client_cpu": round(cpu / wall, 3),
        "per_s": round(count / wall, 1),
        "p50_ms": round(latencies[count // 2] * 1e3, 2) if latencies else None,
        "p99_ms": round(latencies[count * 99 // 100] * 1e3, 2) if latencies else None,
        "errors": errors,
        "error_count": sum(errors.values()),
    }


async def drive(kind: str, url: str, sessions: int, seconds: float) -> dict[str, Any]:
    async with KINDS[kind](url, sessions) as calls:
        await play(calls, min(1.0, seconds / 2))
        gc.collect()
        return await play(calls, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("url")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--core", type=int, default=None)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    result = asyncio.run(drive(options.kind, options.url, options.sessions, options.seconds))
    print(json.dumps({"kind": options.kind, "sessions": options.sessions, **result}))


if __name__ == "__main__":
    main()
