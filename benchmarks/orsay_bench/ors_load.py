"""Load for any server of the Open Reward Standard; one JSON object per run on standard output.

    python -m orsay_bench.ors_load --url http://127.0.0.1:8080 --mode calls --sessions 64 --seconds 5
    python -m orsay_bench.ors_load --url http://127.0.0.1:8080 --mode hold --sessions 16000 --server-pid 1234

Modes: calls and pings (closed loop), episodes (create, prompt, calls, delete), rate (open loop of calls),
memory (idle sessions, then none), hold (live sessions pinged every --interval), burst (calls all at once).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Generator

from .loops import Answers, Result, all_at_once, closed_loop, open_loop, quantiles, run_mode
from .processes import Clock, ProcessTree, memory_of
from .wire import Channel, HttpChannel, Target, connect, drain

SETUP_CHANNELS = 64
SETTLE_S = 1.0


class OrsLoad:
    """The modes, over one server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.target = Target(options.url, dict(pair.split("=", 1) for pair in options.header))
        self.must = options.must.encode()
        self.call_body = json.dumps({"name": options.tool, "input": json.loads(options.input)}).encode()
        self.create_body = json.dumps({"env_name": options.env, "split": options.split, "index": 0}).encode()
        self.server = ProcessTree(options.server_pid) if options.server_pid else None
        self.clock = Clock(self.server)
        self.setup_errors: dict[str, int] = {}

    def create(self, sid: str) -> bytes:
        return self.target.request("POST", "/create", sid, self.create_body)

    def call(self, sid: str) -> bytes:
        return self.target.request("POST", f"/{self.options.env}/call", sid, self.call_body)

    def prompt(self, sid: str) -> bytes:
        return self.target.request("GET", f"/{self.options.env}/prompt", sid)

    def ping(self, sid: str) -> bytes:
        return self.target.request("POST", "/ping", sid)

    def delete(self, sid: str) -> bytes:
        return self.target.request("POST", "/delete", sid)

    async def open_sessions(self, channels: list[HttpChannel], count: int) -> list[str]:
        """Create sessions and wait until each is ready, which is when its prompt is answered."""
        sids = [uuid.uuid4().hex for _ in range(count)]
        for what, request in (("create", self.create), ("prompt", self.prompt)):
            _, errors = await drain(channels[:SETUP_CHANNELS], [request(sid) for sid in sids])
            for kind, times in errors.items():
                key = f"{what} {kind}"
                self.setup_errors[key] = self.setup_errors.get(key, 0) + times
        return sids

    async def close(self, channels: list[HttpChannel], sids: list[str]) -> None:
        live = [channel for channel in channels if not channel.closed][:SETUP_CHANNELS]
        if live:
            await drain(live, [self.delete(sid) for sid in sids])
        for channel in channels:
            channel.close()

    async def _closed(self, request: Callable[[str], bytes], must: bytes) -> Result:
        channels = await connect(self.target, self.options.channels or self.options.sessions)
        sids = await self.open_sessions(channels, self.options.sessions)
        width = len(channels)
        own = [[request(sid) for sid in sids[i::width] or [sids[i % len(sids)]]] for i in range(width)]
        if self.options.warmup:
            await closed_loop(channels, own, self.options.warmup, must, self.clock)
        result = await closed_loop(channels, own, self.options.seconds, must, self.clock)
        await self.close(channels, sids)
        return result

    async def calls(self) -> Result:
        return await self._closed(self.call, self.must)

    async def pings(self) -> Result:
        return await self._closed(self.ping, b"")

    def _steps(self, finished: list[float]) -> Generator[tuple[bytes, bytes], None, None]:
        """Requests of one episode after another, each with what its answer must hold."""
        while True:
            sid = uuid.uuid4().hex
            begin = time.perf_counter()
            yield self.create(sid), b""
            yield self.prompt(sid), b""
            call = self.call(sid)
            for _ in range(self.options.calls):
                yield call, self.must
            yield self.delete(sid), b""
            finished.append(time.perf_counter() - begin)

    async def _episodes_for(self, channels: list[HttpChannel], seconds: float) -> Result:
        answers = Answers()
        episodes: list[float] = []
        live = len(channels)
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        steps: dict[Channel, Generator[tuple[bytes, bytes], None, None]] = {}

        def done(channel: Channel, took: float, error: str, raw: bytes) -> None:
            nonlocal live
            answers.add(took, error)
            before = len(episodes)
            following = next(steps[channel])
            if channel.closed or (len(episodes) > before and time.perf_counter() >= stop_at):
                live -= 1
                if live == 0 and not finished.done():
                    finished.set_result(None)
                return
            channel.send(*following)

        self.clock.start()
        stop_at = time.perf_counter() + seconds
        for channel in channels:
            channel.done = done
            steps[channel] = self._steps(episodes)
            channel.send(*next(steps[channel]))
        await asyncio.wait_for(finished, seconds + 60)
        result = {**self.clock.stop(len(episodes)), **answers.report()}
        return {**result, **quantiles(episodes), "requests": len(answers.seconds)}

    async def episodes(self) -> Result:
        channels = await connect(self.target, self.options.channels or self.options.sessions)
        if self.options.warmup:
            await self._episodes_for(channels, self.options.warmup)
        result = await self._episodes_for(channels, self.options.seconds)
        await self.close(channels, [])
        return result

    async def _another(self) -> HttpChannel:
        return (await connect(self.target, 1))[0]

    async def rate(self) -> Result:
        options = self.options
        channels = await connect(self.target, options.channels or options.sessions)
        sids = await self.open_sessions(channels, options.sessions)
        requests = [self.call(sid) for sid in sids]
        if options.warmup:
            await open_loop(channels, requests, options.rate, options.warmup, self.must, self.clock)
        result = await open_loop(
            channels, requests, options.rate, options.seconds, self.must, self.clock, another=self._another
        )
        await self.close(channels, sids)
        return result

    def _server(self) -> ProcessTree:
        if self.server is None:
            raise SystemExit(f"--mode {self.options.mode} needs --server-pid")
        return self.server

    async def memory(self) -> Result:
        """Resident memory with no session, with many idle ones, after their end, and with as many again."""
        server, count = self._server(), self.options.sessions
        idle, idle_gateway = server.memory(), memory_of(server.pid)
        channels = await connect(self.target, self.options.channels or 16)
        warm = await self.open_sessions(channels, 200)
        await drain(channels, [self.delete(sid) for sid in warm])
        await asyncio.sleep(SETTLE_S)
        before = server.memory()
        begin = time.perf_counter()
        sids = await self.open_sessions(channels, count)
        opened_s = time.perf_counter() - begin
        await asyncio.sleep(SETTLE_S)
        full = server.memory()
        await drain(channels, [self.delete(sid) for sid in sids])
        await asyncio.sleep(2 * SETTLE_S)
        after = server.memory()
        again = await self.open_sessions(channels, count)
        await asyncio.sleep(SETTLE_S)
        refilled = server.memory()
        await self.close(channels, again)
        return {
            "n": count,
            "open_s": round(opened_s, 2),
            "gateway_rss_mb": round(idle_gateway.rss_kib * 1.024e-3, 1),
            "idle_rss_mb": round(idle.rss_kib * 1.024e-3, 1),
            "idle_pss_mb": round(idle.pss_kib * 1.024e-3, 1),
            "before_rss_mib": round(before.rss_kib / 1024, 1),
            "full_rss_mib": round(full.rss_kib / 1024, 1),
            "kib_per_session": round((full.rss_kib - before.rss_kib) / count, 2),
            "left_mib": round((after.rss_kib - before.rss_kib) / 1024, 2),
            "second_fill_mib": round((refilled.rss_kib - full.rss_kib) / 1024, 2),
            "threads_idle": before.threads,
            "threads_full": full.threads,
            "errors": self.setup_errors,
            "error_count": sum(self.setup_errors.values()),
        }

    async def hold(self) -> Result:
        """Live sessions, each pinged every interval; `server_starved_ms`: how long others had its core."""
        options, server = self.options, self._server()
        before = server.memory()
        count = options.sessions
        width = count if options.channel_per_session else (options.channels or 256)
        channels = await connect(self.target, width)
        sids = await self.open_sessions(channels, count)
        requests = [self.ping(sid) for sid in sids]
        watch = asyncio.create_task(worst_wait(server))
        try:
            result = await open_loop(
                channels,
                requests,
                count / options.interval,
                options.seconds,
                b"",
                self.clock,
                another=self._another,
            )
        finally:
            watch.cancel()
        memory = server.memory()
        await self.close(channels, sids)
        errors = {**self.setup_errors, **result["errors"]}
        return {
            **result,
            "errors": errors,
            "error_count": sum(errors.values()),
            "server_starved_ms": round((await watch) * 1e3, 1),
            "grew_mib": round((memory.rss_kib - before.rss_kib) / 1024, 1),
            "files": memory.files,
            "threads": memory.threads,
        }

    async def burst(self) -> Result:
        options = self.options
        channels = await connect(self.target, options.sessions)
        sids = await self.open_sessions(channels, options.sessions)
        requests = [self.call(sid) for sid in sids]
        result = await all_at_once(channels, requests, self.must, self.clock, options.timeout)
        await self.close(channels if not result["errors"] else [], sids)
        return result


async def worst_wait(server: ProcessTree, window_s: float = 0.25) -> float:
    """Until cancelled: the longest time within one window that the server was ready but not running."""
    worst, last = 0.0, server.waited_s()
    try:
        while True:
            await asyncio.sleep(window_s)
            now = server.waited_s()
            worst, last = max(worst, now - last), now
    except asyncio.CancelledError:
        return worst


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m orsay_bench.ors_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--url", required=True)
    made.add_argument("--env", default="echoenvironment", help="environment name in the path")
    made.add_argument(
        "--mode",
        choices=["calls", "pings", "episodes", "rate", "memory", "hold", "burst"],
        default="calls",
    )
    made.add_argument("--sessions", type=int, default=64)
    made.add_argument("--channels", type=int, default=0, help="connections (default: one per session)")
    made.add_argument("--channel-per-session", action="store_true", help="hold: not 256 shared ones")
    made.add_argument("--seconds", type=float, default=5)
    made.add_argument("--warmup", type=float, default=1)
    made.add_argument("--rate", type=float, default=200, help="rate: calls per second")
    made.add_argument("--interval", type=float, default=10, help="hold: seconds between pings of a session")
    made.add_argument("--calls", type=int, default=1, help="episodes: tool calls in each")
    made.add_argument("--timeout", type=float, default=120, help="burst: give up after this many seconds")
    made.add_argument("--split", default="train")
    made.add_argument("--tool", default="echo")
    made.add_argument("--input", default='{"text": "hello"}', help="the tool's arguments, as JSON")
    made.add_argument("--must", default='"ok":true', help="a call is right when its answer holds this")
    made.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    made.add_argument("--server-pid", type=int, default=0, help="for CPU and memory of the server")
    made.add_argument("--core", type=int, default=None, help="run the generator on this core only")
    return made


def main() -> None:
    options = parser().parse_args()
    load = OrsLoad(options)
    modes: dict[str, Callable[[], Awaitable[Result]]] = {
        "calls": load.calls,
        "pings": load.pings,
        "episodes": load.episodes,
        "rate": load.rate,
        "memory": load.memory,
        "hold": load.hold,
        "burst": load.burst,
    }
    run_mode(modes, options)


if __name__ == "__main__":
    main()
