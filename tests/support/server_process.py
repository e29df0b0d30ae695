"""Real server processes and a client so plain that it hides nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from orsay_protocol.sse import Decoder, Event

from ..support.servers import start

__all__ = ["WORLDS", "Api", "Reply", "ServerProcess", "api_for", "children", "raw_request", "server", "until"]

ROOT = Path(__file__).parents[2]
WORLDS = str(ROOT / "tests" / "runtimes" / "worlds.py")
START_S = 60.0
WAIT_S = 20.0
_URL = re.compile(r"http://\S+:\d+")


async def until(condition: Callable[[], Any], *, timeout_s: float = WAIT_S) -> None:
    """Wait for what happens in another process, where no event can be awaited."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def children(pid: int) -> list[int]:
    """Process ids of the children of ``pid``."""
    try:
        found = [
            Path(f"/proc/{pid}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{pid}/task")
        ]
    except FileNotFoundError:
        return []
    return [int(each) for text in found for each in text.split()]


def is_running(pid: int) -> bool:
    """Alive, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _limit_open_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count // 2, count))


class ServerProcess:
    """``orsay serve`` in a process of its own, with all that it writes."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        drained: bool = True,
        folder: Path = ROOT,
        open_files: int | None = None,
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
        (out, out_end), (log, log_end) = os.pipe(), os.pipe()
        self._streams = (os.fdopen(out, "rb"), os.fdopen(log, "rb"))
        try:
            self._process = start(
                [sys.executable, "-m", "orsay", "serve", *arguments],
                cwd=folder,
                env={**clean, "ORSAY_JOURNAL": "off", **env},
                stdout=out_end,
                stderr=log_end,
                start_new_session=True,
                preexec_fn=None if open_files is None else partial(_limit_open_files, open_files),
            )
        finally:
            os.close(out_end)
            os.close(log_end)
        self.pid = self._process.pid
        self.output: list[str] = []
        self.log: list[str] = []
        self._url = threading.Event()
        self.url = ""
        self._readers = [threading.Thread(target=self._read_output, daemon=True)]
        if drained:
            self._readers.append(threading.Thread(target=self._read_log, daemon=True))
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        for line in self._streams[0]:
            self.output.append(line.decode())
            found = _URL.search(self.output[-1])
            if found:
                self.url = found.group()
                self._url.set()
        self._url.set()

    def _read_log(self) -> None:
        for line in self._streams[1]:
            self.log.append(line.decode())

    def wait_for_url(self) -> None:
        if not self._url.wait(START_S) or not self.url:
            code = self.end()
            raise RuntimeError(f"no URL; exit code {code}; {self.everything}")

    @property
    def everything(self) -> str:
        """All that was written, to either stream."""
        return "".join(self.output + self.log)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event."""
        lines = [json.loads(line) for line in list(self.log) if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float = 40.0) -> int:
        """The exit code; the output is complete then."""
        code = self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def end(self) -> int:
        """Stop it if it still runs, and let nothing live on."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self.wait(20)
        finally:
            for stream in self._streams:
                stream.close()

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@contextmanager
def server(
    *targets: str,
    options: Sequence[str] = (),
    drained: bool = True,
    open_files: int | None = None,
    **settings: Any,
) -> Iterator[ServerProcess]:
    """A running server; ``settings`` by their names, given as variables; ``open_files``: at most so many."""
    if not targets:
        targets = (f"{WORLDS}:World", f"{WORLDS}:AsyncWorld", f"{WORLDS}:Plain")
    env = {
        f"ORSAY_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }
    process = ServerProcess(
        ["--port", "0", *targets, *options],
        {"ORSAY_WORKERS": "2", **env},
        drained=drained,
        open_files=open_files,
    )
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


class Reply:
    """The answer of an endpoint that streams."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.events: list[Event] = Decoder().feed(response.content) if self.status == 200 else []

    @property
    def task_id(self) -> str:
        assert self.events[0].event == "task_id"
        return self.events[0].data

    @property
    def result(self) -> Any:
        names = [event.event for event in self.events]
        assert names == ["task_id"] + ["chunk"] * (len(names) - 2) + ["end"], (
            self.status,
            names,
            self.detail,
        )
        return json.loads("".join(event.data for event in self.events[1:]))

    @property
    def text(self) -> str:
        result = self.result
        assert result["ok"], result
        text: str = result["output"]["blocks"][0]["text"]
        return text

    @property
    def fault(self) -> str:
        """Class of the fault; the stream is complete."""
        names = [event.event for event in self.events]
        assert names[-2:] == ["fault", "error"], (self.status, names, self.response.text[:500])
        fault: dict[str, Any] = json.loads(self.events[-2].data)
        assert fault["message"] == self.events[-1].data
        return str(fault["class"])

    @property
    def error(self) -> str:
        assert self.events[-1].event == "error"
        return self.events[-1].data

    @property
    def detail(self) -> str:
        return str(self.response.json()["detail"]) if self.status != 200 else ""


class Api:
    """A session, or none yet, on a server."""

    def __init__(self, http: httpx.AsyncClient, sid: str | None = None, **headers: str) -> None:
        self.http = http
        self.sid = sid or str(uuid.uuid4())
        self._headers = {"X-Session-ID": self.sid, **headers}

    def other(self, **headers: str) -> Api:
        """A session of another id."""
        return Api(self.http, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return await self.http.post(path, json=body, headers={**self._headers, **headers})

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers={**self._headers, **headers})

    async def create(self, env: str = "world", **spec: Any) -> Api:
        """Create the session, and expect that to work."""
        answer = await self.post("/create", {"env_name": env, "task_spec": spec})
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"sid": self.sid}
        return self

    async def call(self, name: str, *, headers: Mapping[str, str] | None = None, **arguments: Any) -> Reply:
        return Reply(await self.post("/call", {"name": name, "input": arguments}, **(headers or {})))

    async def attach(self, task_id: str, path: str = "/call") -> Reply:
        body = {"name": "x", "input": {}, "task_id": task_id}
        if path.endswith("score_group"):
            body = {"candidates": [], "task_id": task_id}
        return Reply(await self.post(path, body))

    async def ping(self) -> int:
        return (await self.post("/ping")).status_code

    async def delete(self) -> None:
        answer = await self.post("/delete")
        assert answer.status_code == 200 and answer.json()["sid"] == self.sid


@asynccontextmanager
async def api_for(url: str, **headers: str) -> AsyncIterator[Api]:
    """A client with as many connections as it takes, and no retries."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    # No certificates: to read them takes more than most requests, and every server here speaks plain HTTP.
    async with httpx.AsyncClient(
        base_url=url, timeout=WAIT_S, limits=limits, headers=headers, verify=False
    ) as http:
        yield Api(http)


def raw_request(path: str, sid: str, body: Any, **headers: str) -> bytes:
    """A POST request as bytes, the body as httpx writes it."""
    content = json.dumps(body, separators=(",", ":")).encode()
    lines = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        "X-Session-ID": sid,
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def send_and_vanish(url: str, request: bytes) -> None:
    """Send a request and reset the connection without reading a byte."""
    _, writer = await connect(url)
    writer.write(request)
    await writer.drain()
    writer.transport.abort()


async def timed(work: Any) -> float:
    """For how long ``work`` took, in seconds."""
    start = time.perf_counter()
    await work
    return time.perf_counter() - start
