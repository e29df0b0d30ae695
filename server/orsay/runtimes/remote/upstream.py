"""One server behind this one: its state, requests, and our sessions there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from orsay_protocol.faults import FaultClass
from orsay_protocol.headers import API_KEY
from orsay_protocol.redact import Redactor, latest, redactor

from ...errors import Faulted, Starting
from ..base import EnvironmentInfo
from ..execution.runs import Runs
from .answers import is_from_between
from .backoff import Backoff
from .discovery import Unusable
from .health import Watch
from .http import Answer, Broken, HttpClient, Misdirected, Stream, address_of, parse_url
from .options import RemoteOptions
from .read_timeouts import ReadTimeouts

__all__ = ["Upstream", "UpstreamSession"]

T = TypeVar("T")

_NO_SECRETS: Mapping[str, str] = MappingProxyType({})
_PINGS_AT_ONCE = 64
_END_S = 5.0
_DRAIN_S = 1.0


class UpstreamSession(Protocol):
    """Interface of a session at an upstream: pings, and loss."""

    touched_at: float

    async def ping(self) -> None: ...

    def mark_lost(self, fault: FaultClass, reason: str) -> None: ...


class Upstream:
    """An ORS server by URL, monitored between ``start`` and ``close``.

    ``label`` names it in logs and errors, by default host and port. ``changed`` is called when it goes up or
    down, or its environments change. Raises ConfigError for an invalid URL.
    """

    def __init__(
        self,
        url: str,
        options: RemoteOptions,
        *,
        changed: Callable[[], None],
        label: str = "",
    ) -> None:
        parse_url(url)
        self.label = label or address_of(url)
        self.name = f"the server {self.label} behind this one"
        self.options = options
        self.sessions: set[UpstreamSession] = set()
        self.hides: frozenset[Redactor] = frozenset()
        """Redactors for recently sent secrets; read by other threads too."""
        key = options.api_key
        self.headers = {} if key is None else {API_KEY: key.get_secret_value()}
        self.json_headers = {**self.headers, "Content-Type": "application/json"}
        self._url = url
        password = unquote(urlsplit(url).password or "")
        self._own = tuple(value for value in (*self.headers.values(), password) if value)
        self._watch = Watch(self.label, options, self._get, changed, self.hide())
        self._hides: tuple[Redactor, ...] = ()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._http: HttpClient
        self.runs: Runs
        self.read_timeouts: ReadTimeouts
        self.now: Callable[[], float]

    # state of the server

    @property
    def up(self) -> bool:
        """True once the server has answered, until it is found to be down."""
        return self._watch.up

    @property
    def problem(self) -> str:
        """The reason why it is down."""
        return self._watch.problem

    @property
    def outages(self) -> int:
        """Number of outages so far."""
        return self._watch.outages

    @property
    def environments(self) -> tuple[EnvironmentInfo, ...]:
        """Hosted environments; while the server is down, those of the last time that it was up."""
        return self._watch.found.environments

    @property
    def ours(self) -> bool:
        """True for an Orsay server, which honours Idempotency-Key and our other additions."""
        return self._watch.found.ours

    @property
    def secrets_in_body(self) -> bool:
        """True if the server is too old to read X-Secrets."""
        return not self._watch.found.versioned

    def hide(self, secrets: Mapping[str, str] = _NO_SECRETS) -> Redactor:
        """Redactor for its texts: the secrets of a session, and our key and password for it."""
        return redactor((*self._own, *secrets.values()))

    def remember_secrets(self, secrets: Mapping[str, str]) -> None:
        """Redact these from the server's output, during the session and for a while after it."""
        if not secrets:
            return
        self._hides = latest((self.hide(secrets), *self._hides))
        self.hides = frozenset(self._hides)

    def look_again(self) -> None:
        """Read the environments again: they may have changed."""
        self._watch.look_again()

    # life cycle

    async def start(self) -> None:
        """Wait for the server, for a bounded time; it may also come up later.

        Raises LoadError for an unusable server: it refuses the key, or is no ORS server.
        """
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.runs = Runs(slow_after_s=self.options.slow_after_s)
        self.read_timeouts = ReadTimeouts(self.options.silence_s)
        self._http = HttpClient(self._url, connect_timeout_s=self.options.connect_timeout_s)
        self._watching = [loop.create_task(self._watch.run()), loop.create_task(self._keep_alive())]
        try:
            await self._watch.first()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections; sessions were closed before."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._watching:  # it had started
            await self._http.close()
            self.runs.close()
            self.read_timeouts.close()

    def mark_lost(self, fault: FaultClass, reason: str) -> None:
        """Mark every session lost: the server is known to be gone."""
        for session in list(self.sessions):
            session.mark_lost(fault, reason)
        self._watch.went_down(reason)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task that continues even if its caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the error goes to the task's awaiter too

    # requests

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        silence_s: float | None = None,
    ) -> Answer:
        """One request and its whole answer. Raises Broken, or Faulted for a redirect to another server.

        An error answer of a proxy in between is Broken too.
        """
        limit_s = self.options.request_timeout_s if silence_s is None else silence_s
        try:
            answer = await self._http.send(method, path, headers, body=body, silence_s=limit_s)
            if is_from_between(answer):
                raise Broken(f"a proxy answered {answer.status}", may_have_run=True)
        except Broken as broken:
            self.note(broken)
            raise
        except Misdirected as exc:
            raise self.deviates(str(exc)) from exc
        self._watch.note_answer()
        return answer

    async def stream(self, path: str, headers: Mapping[str, str], body: bytes) -> Stream:
        """One request with a streamed answer; ``release`` ends it. Raises as ``send``.

        Must be used inside a block of ``read_timeouts.watch``.
        """
        try:
            stream = await self._http.open("POST", path, headers, body=body)
        except Misdirected as exc:
            raise self.deviates(str(exc)) from exc
        self._watch.note_answer()
        return stream

    def release(self, stream: Stream) -> None:
        """Stop reading. Only the very last bytes of an ended stream may be missing."""
        if stream.at_end:
            stream.close()
        else:
            self.spawn(_drain(stream))

    def note(self, broken: Broken) -> None:
        """Note a failed request, and check the server."""
        self._watch.broke(broken)

    def deviates(self, what: str) -> Faulted:
        """The fault for an answer that violates ORS."""
        return Faulted("internal", f"{self.name} {what}")

    def starting(self, broken: Broken) -> Starting:
        """The answer to a request that did not reach the server: nothing ran."""
        return Starting(f"{self.name} cannot be reached: {broken}; it is tried again")

    async def _get(self, path: str) -> Answer:
        """Send a request of the health checks, which handle failures themselves."""
        limit_s = self.options.request_timeout_s
        try:
            return await self._http.send("GET", path, self.headers, silence_s=limit_s)
        except Misdirected as exc:
            raise Unusable(str(exc)) from exc

    # sessions

    async def delete(self, headers: Mapping[str, str]) -> Answer:
        """End a session, and wait until it is torn down. Raises Broken."""
        backoff = Backoff()
        while True:
            try:
                answer = await self.send("POST", "/delete", headers)
                break
            except Broken:
                delay = backoff.next_s() if self.up else None
                if delay is None:
                    raise
            await asyncio.sleep(delay)
        if not self.ours:  # some hosted servers need it
            with contextlib.suppress(Broken):
                await self.send("POST", "/delete_session", headers)
        return answer

    def forget(self, session: UpstreamSession) -> None:
        """Remove an ended session: no more pings."""
        self.sessions.discard(session)

    async def _keep_alive(self) -> None:
        """Ping idle sessions."""
        pause_s = self.options.ping_s / 8
        slots = asyncio.Semaphore(_PINGS_AT_ONCE)

        async def ping(session: UpstreamSession) -> None:
            async with slots:
                if session in self.sessions:
                    await session.ping()

        while True:
            await asyncio.sleep(pause_s)
            if self.up:
                before = self.now() - self.options.ping_s + pause_s
                due = [session for session in self.sessions if session.touched_at < before]
                await asyncio.gather(*map(ping, due), return_exceptions=True)


async def _drain(stream: Stream) -> None:
    with contextlib.suppress(Broken, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while await stream.read():
                pass
    stream.close()
