"""A client of one session, so plain that it hides nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from orsay_protocol.sse import Decoder, Event

__all__ = ["Api", "Reply", "api_for", "timed"]

_WAIT_S = 20.0


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

    async def create(self, env: str = "scripted", **spec: Any) -> Api:
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
        base_url=url, timeout=_WAIT_S, limits=limits, headers=headers, verify=False
    ) as http:
        yield Api(http)


async def timed(work: Any) -> float:
    """For how long ``work`` took, in seconds."""
    start = time.perf_counter()
    await work
    return time.perf_counter() - start
