"""The server under test, and facts about its environment, read once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from orsay_protocol import headers as names
from orsay_protocol.sse import Decoder

from ..journal.trials import trial_run
from .failures import Failed, NotSupported, Unreachable, expect
from .probe import Probe, Roles
from .reply import Reply
from .strict import json_of
from .wire import Connection, RawReply, connection

__all__ = ["Reply", "Target", "TargetSession"]

_TIMEOUT_S = 30.0
_SETUP_LIMIT_S = 120.0
# An idle connection is not used again where a server may be closing it: uvicorn does so after five seconds.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)


@dataclass
class Target:
    """One environment of one server. Make it with ``Target.open``."""

    url: str
    http: httpx.AsyncClient
    api_key: str | None
    environments: list[str] = field(default_factory=list)
    env: str = ""
    splits: list[dict[str, Any]] = field(default_factory=list)
    split: str = ""
    count: int = 0
    tools: dict[str, Any] = field(default_factory=dict)
    roles: Roles = field(default_factory=Roles)
    created: set[str] = field(default_factory=set)
    """Sessions that are not deleted yet."""

    def __post_init__(self) -> None:
        self.probe = Probe(self, self.roles)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        env: str | None = None,
        api_key: str | None = None,
        roles: Roles | None = None,
    ) -> AsyncIterator[Target]:
        """Connect and read the environment; the end of the block deletes all sessions of ours.

        Raises Unreachable if no ORS server answers, or it lacks that environment.
        """
        url = url.rstrip("/")
        scheme = urlsplit(url).scheme
        if scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise Unreachable(f"{url!r} is no URL of a server; it looks like http://127.0.0.1:8080")
        # Rewards of checks measure no model: the server excludes them from its totals.
        headers = {names.RUN: trial_run("check")}
        if api_key is not None:
            headers[names.API_KEY] = api_key
        # Loading certificates takes longer than a check; an http URL without redirects needs none.
        async with httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=_TIMEOUT_S,
            limits=_LIMITS,
            trust_env=False,
            verify=scheme == "https",
        ) as http:
            target = cls(url, http, api_key, roles=roles or Roles())
            try:
                await target._look_around(env)
            except httpx.TransportError as exc:
                raise Unreachable(f"{url} does not answer: {exc or type(exc).__name__}") from exc
            except (LookupError, TypeError, ValueError, AttributeError) as exc:
                raise Unreachable(f"{url} answers, but not as an ORS server: {exc!r}") from exc
            try:
                yield target
            finally:
                await target.probe.close()
                await target._leave()

    async def _leave(self) -> None:
        """Delete sessions that checks left open; ignore a server that does not answer."""
        for sid in sorted(self.created):
            with contextlib.suppress(httpx.HTTPError):
                await TargetSession(self, sid).post("/delete")

    async def _look_around(self, env: str | None) -> None:
        self.environments = list(await self._must("GET", "/list_environments"))
        self.env = (env or self.environments[0]).lower()
        if self.env not in self.environments:
            raise Unreachable(
                f"{self.url} has no environment {env!r}; it has: {', '.join(self.environments)}"
            )
        self.splits = list(await self._must("GET", f"/{self.env}/splits"))
        self.tools = dict(await self._must("GET", f"/{self.env}/tools"))
        for split in self.splits:
            counted = await self._must("POST", f"/{self.env}/num_tasks", {"split": split["name"]})
            self.split, self.count = split["name"], counted["num_tasks"]
            if self.count:
                break

    async def _must(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.http.request(method, path, json=body)
        if answer.status_code == 401:
            raise Unreachable(f"{self.url} requires an API key: {answer.text[:200]}")
        if answer.status_code != 200:
            raise Unreachable(f"{method} {self.url}{path} answered {answer.status_code}: {answer.text[:200]}")
        try:
            return json_of(answer)
        except Failed as exc:
            raise Unreachable(f"{self.url} is no ORS server: {exc}") from exc

    async def is_ours(self) -> bool:
        """True if the server declares itself an Orsay server: it has to keep our promises."""
        if (await self.get("/ready")).status_code == 200:
            return True
        return names.ORSAY.lower() in (await self.post("/create_session")).headers

    def path(self, suffix: str) -> str:
        return f"/{self.env}{suffix}"

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.http.get(path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        if body is not None:
            more["json"] = body
        return await self.http.post(path, **more)

    def tool_specs(self) -> list[dict[str, Any]]:
        return list(self.tools["tools"])

    def need_tasks(self) -> None:
        if not self.count:
            raise NotSupported("no split of this environment has a task")

    def raw(self) -> Any:
        """An ``async with`` connection for raw requests."""
        return connection(self.url, {} if self.api_key is None else {names.API_KEY: self.api_key})

    async def new_sid(self) -> str:
        """A session id, from either form of ``/create_session``."""
        answer = await self.post("/create_session", headers={"Accept": "text/event-stream"})
        expect(
            answer.status_code == 200, f"/create_session answered {answer.status_code}: {answer.text[:200]}"
        )
        if answer.headers.get("content-type", "").startswith("application/json"):
            return str(json_of(answer)["sid"])
        events = Decoder().feed(answer.content)
        found = [event.data for event in events if event.event == "task_id"]
        expect(found, f"/create_session sent no task_id event: {answer.text[:200]!r}")
        return found[0]

    def task_source(self) -> dict[str, Any]:
        self.need_tasks()
        return {"split": self.split, "index": 0, "env_name": self.env}

    @asynccontextmanager
    async def session(self, body: Mapping[str, Any] | None = None) -> AsyncIterator[TargetSession]:
        """A session on the first task, deleted at the end."""
        session = TargetSession(self, await self.new_sid())
        answer = await session.post("/create", body or self.task_source())
        expect(answer.status_code == 200, f"/create answered {answer.status_code}: {answer.text[:200]}")
        try:
            yield session
        finally:
            await session.post("/delete")
            await session.post("/delete_session")


@dataclass(frozen=True, slots=True)
class TargetSession:
    """Requests of one session. Waits while the server answers that setup still runs."""

    target: Target
    sid: str

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {names.SESSION_ID: self.sid, **(more or {})}

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return await self._send("GET", path, None, headers)

    async def post(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return await self._send("POST", path, body, headers)

    async def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        async with asyncio.timeout(_SETUP_LIMIT_S):
            while True:
                extra = {} if body is None else {"json": body}
                answer = await self.target.http.request(method, path, headers=self.headers(headers), **extra)
                self._note(path, answer.status_code)
                starting = answer.headers.get(names.BACKEND_STATE) == "starting"
                if answer.status_code != 503 or not starting:
                    return answer
                await asyncio.sleep(min(5.0, float(answer.headers.get("retry-after", 1))))

    def _note(self, path: str, status: int) -> None:
        if path == "/create" and status == 200:
            self.target.created.add(self.sid)
        elif path == "/delete" and status == 200:
            self.target.created.discard(self.sid)

    async def call(
        self,
        name: str,
        value: Mapping[str, Any],
        *,
        task_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        body: dict[str, Any] = {"name": name, "input": dict(value)}
        if task_id is not None:
            body["task_id"] = task_id
        return await self.stream("/call", body, headers)

    async def stream(
        self, suffix: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        accept = {"Accept": "text/event-stream", **(headers or {})}
        answer = await self.post(self.target.path(suffix), body, accept)
        decoded = Decoder().feed(answer.content) if answer.status_code == 200 else []
        return Reply(answer.status_code, answer.headers, answer.content, decoded)

    @asynccontextmanager
    async def open_stream(
        self, name: str, value: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Stream the answer of a call, without a time limit."""
        body, path = {"name": name, "input": dict(value)}, self.target.path("/call")
        sent = self.headers({"Accept": "text/event-stream", **(headers or {})})
        async with self.target.http.stream("POST", path, json=body, headers=sent, timeout=None) as answer:
            yield answer

    async def raw_call(self, wire: Connection, name: str, value: Mapping[str, Any]) -> RawReply:
        """Raw call; ``body`` of the answer has the exact bytes of the stream."""
        return await wire.request("POST", *self._by_hand(name, value, {}))

    async def send_raw_call(
        self, wire: Connection, name: str, value: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        """Send a raw call without reading its answer."""
        await wire.send("POST", *self._by_hand(name, value, headers))

    def _by_hand(
        self, name: str, value: Mapping[str, Any], headers: Mapping[str, str]
    ) -> tuple[str, dict[str, str], bytes]:
        body = json.dumps({"name": name, "input": dict(value)}).encode()
        sent = {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
        return self.target.path("/call"), self.headers(sent), body


def fresh_sid() -> str:
    """A session id that the server has never seen."""
    return str(uuid.uuid4())
