"""Load for OpenEnv servers over their WebSocket, in the modes of ors_load that exist there.

    python -m orsay_bench.openenv_load --url http://127.0.0.1:8000 --mode calls --sessions 64 --seconds 5

Modes: calls (steps, closed loop), episodes (connect, reset, step, close), rate (open loop of steps), memory.
Each run prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from .loops import Answers, Result, closed_loop, open_loop, run_mode
from .processes import Clock, ProcessTree, memory_of
from .websocket import WebSocketChannel, frame, open_websocket
from .wire import Target, ask

STEP = frame(b'{"type":"step","data":{"message":"hello"}}')
RESET = frame(b'{"type":"reset","data":{}}')
MUST = b'"observation"'


class OpenEnvLoad:
    """The modes, over one server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.target = Target(options.url)
        self.server = ProcessTree(options.server_pid) if options.server_pid else None
        self.clock = Clock(self.server)
        self.setup_errors: dict[str, int] = {}

    async def session(self) -> WebSocketChannel:
        channel = await open_websocket(self.target, "/ws")
        _, error, raw = await ask(channel, RESET, MUST)
        if error:
            raise ConnectionError(f"reset: {error} {raw[:60]!r}")
        return channel

    async def sessions(self, count: int, at_once: int = 32) -> list[WebSocketChannel]:
        opened: list[WebSocketChannel] = []
        limit = asyncio.Semaphore(at_once)

        async def one() -> None:
            async with limit:
                try:
                    opened.append(await self.session())
                except (OSError, TimeoutError) as error:
                    kind = str(error)[:80] or type(error).__name__
                    self.setup_errors[kind] = self.setup_errors.get(kind, 0) + 1

        await asyncio.gather(*(one() for _ in range(count)))
        if not opened:
            raise SystemExit(f"no session could be opened: {self.setup_errors}")
        return opened

    def _with_setup(self, result: Result) -> Result:
        errors = {**self.setup_errors, **result["errors"]}
        return {**result, "errors": errors, "error_count": sum(errors.values())}

    async def calls(self) -> Result:
        channels = await self.sessions(self.options.sessions)
        own = [[STEP]] * len(channels)
        if self.options.warmup:
            await closed_loop(channels, own, self.options.warmup, MUST, self.clock)
        result = await closed_loop(channels, own, self.options.seconds, MUST, self.clock)
        for channel in channels:
            channel.goodbye()
        return self._with_setup(result)

    async def episodes(self) -> Result:
        answers = Answers()
        stop_at = time.perf_counter() + self.options.seconds

        async def player() -> None:
            while time.perf_counter() < stop_at:
                begin = time.perf_counter()
                try:
                    channel = await self.session()
                    _, error, _ = await ask(channel, STEP, MUST)
                    channel.goodbye()
                except (OSError, TimeoutError) as failure:
                    error = str(failure)[:80] or type(failure).__name__
                    await asyncio.sleep(0.05)
                answers.add(time.perf_counter() - begin, error)

        self.clock.start()
        await asyncio.gather(*(player() for _ in range(self.options.sessions)))
        return {**self.clock.stop(len(answers.seconds)), **answers.report()}

    async def rate(self) -> Result:
        options = self.options
        channels = await self.sessions(options.sessions)
        if options.warmup:
            await open_loop(channels, [STEP], options.rate, options.warmup, MUST, self.clock)
        result = await open_loop(channels, [STEP], options.rate, options.seconds, MUST, self.clock)
        for channel in channels:
            channel.goodbye()
        return self._with_setup(result)

    async def memory(self) -> Result:
        server, count = self.server, self.options.sessions
        if server is None:
            raise SystemExit("--mode memory needs --server-pid")
        idle, idle_gateway = server.memory(), memory_of(server.pid)
        for channel in await self.sessions(50):
            channel.goodbye()
        await asyncio.sleep(2)
        before = server.memory()
        begin = time.perf_counter()
        channels = await self.sessions(count)
        opened_s = time.perf_counter() - begin
        await asyncio.sleep(1)
        full = server.memory()
        for channel in channels:
            channel.goodbye()
        await asyncio.sleep(5)
        after = server.memory()
        return {
            "n": len(channels),
            "open_s": round(opened_s, 2),
            "gateway_rss_mb": round(idle_gateway.rss_kib * 1.024e-3, 1),
            "idle_rss_mb": round(idle.rss_kib * 1.024e-3, 1),
            "idle_pss_mb": round(idle.pss_kib * 1.024e-3, 1),
            "before_rss_mib": round(before.rss_kib / 1024, 1),
            "full_rss_mib": round(full.rss_kib / 1024, 1),
            "kib_per_session": round((full.rss_kib - before.rss_kib) / len(channels), 2),
            "left_mib": round((after.rss_kib - before.rss_kib) / 1024, 2),
            "threads_idle": before.threads,
            "threads_full": full.threads,
            "errors": self.setup_errors,
            "error_count": sum(self.setup_errors.values()),
        }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m orsay_bench.openenv_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--url", required=True)
    made.add_argument("--mode", choices=["calls", "episodes", "rate", "memory"], default="calls")
    made.add_argument("--sessions", type=int, default=64)
    made.add_argument("--seconds", type=float, default=5)
    made.add_argument("--warmup", type=float, default=1)
    made.add_argument("--rate", type=float, default=200, help="rate: steps per second")
    made.add_argument("--server-pid", type=int, default=0, help="for CPU and memory of the server")
    made.add_argument("--core", type=int, default=None, help="run the generator on this core only")
    return made


def main() -> None:
    options = parser().parse_args()
    load = OpenEnvLoad(options)
    modes: dict[str, Callable[[], Awaitable[Result]]] = {
        "calls": load.calls,
        "episodes": load.episodes,
        "rate": load.rate,
        "memory": load.memory,
    }
    run_mode(modes, options)


if __name__ == "__main__":
    main()
