"""One server behind this one: what it hosts, whether it is up, the sessions that live there."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from orsay_protocol.faults import FaultClass
from orsay_protocol.headers import API_KEY, RUN, SECRETS, SESSION_ID, STATE, encode_secrets
from orsay_protocol.sse import Decoder
from pydantic_core import from_json, to_json

from ...errors import BadTask, Faulted, LoadError, OpeningLost, Starting
from ...logs import get_logger
from ...running import Runs
from ..base import EnvironmentInfo, Listener, OpenSession
from .answers import detail_of, error_of
from .border import Answer, Border, Broken, Misdirected, Stream, parse_url, place_of
from .discovery import Found, Unusable, discover, env_path
from .handle import RemoteHandle
from .options import RemoteOptions
from .patience import Patience, backoff_s
from .silence import Silence

__all__ = ["Upstream"]

T = TypeVar("T")

_log = get_logger(__name__)
_LOOK_AGAIN_S = 30.0  # what an upstream hosts may change
_PINGS_AT_ONCE = 64
_SILENT_LIMIT = 3
_END_S = 5.0
_DRAIN_S = 1.0
_NO_HEADERS: Mapping[str, str] = {}


class Upstream:
    """An ORS server by URL. ``start`` comes first, ``close`` last; in between it is watched.

    ``label`` names it in logs and errors, host and port where none is given. ``changed`` is called when it
    went up or down or hosts other environments than before. Raises ConfigError for what is no URL.
    """

    def __init__(
        self,
        url: str,
        options: RemoteOptions,
        *,
        label: str = "",
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.label = label or place_of(url)
        self.name = f"the server {self.label} behind this one"
        self.options = options
        self.environments: tuple[EnvironmentInfo, ...] = ()
        self.ours = False
        self.up = False
        self.problem = "it was not reached yet"
        self.sessions: set[RemoteHandle] = set()
        self._url = url
        parse_url(url)
        self._changed = changed or _nothing
        self._secrets_in_body = False
        key = options.api_key
        self._headers = {} if key is None else {API_KEY: key.get_secret_value()}
        self.json_headers = {**self._headers, "Content-Type": "application/json"}
        self._silent = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._border: Border
        self.runs: Runs
        self.silence: Silence
        self.now: Callable[[], float]

    # life

    async def start(self) -> None:
        """Look for the server, for a bounded time; it may come up later, too.

        Raises LoadError when something answers that cannot be used: it refuses the key, or is no ORS server.
        """
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.runs = Runs()
        self.silence = Silence(self.options.silence_s)
        self._border = Border(self._url, connect_timeout_s=self.options.connect_timeout_s)
        self._heard_at = self._looked_at = self.now()
        self._suspected = asyncio.Event()
        self._first: asyncio.Future[None] = loop.create_future()
        self._watching = [loop.create_task(self._watch()), loop.create_task(self._keep_alive())]
        try:
            async with asyncio.timeout(self.options.start_wait_s):
                await asyncio.shield(self._first)
        except TimeoutError:
            self._first.cancel()
            _log.warning("upstream_pending", upstream=self.label, reason=self.problem)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let everything go; sessions were closed before."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if hasattr(self, "_border"):
            await self._border.close()
            self.runs.close()
            self.silence.close()

    def lose(self, fault: FaultClass, reason: str) -> None:
        """Whoever runs the server knows that it is gone, and every session in it."""
        for session in list(self.sessions):
            session.lose(fault, reason)
        self._went_down(reason)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Something that goes on even if its caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for the task has it too

    # requests

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        *,
        silence_s: float | None = None,
    ) -> Answer:
        """One request and its whole answer. Raises Broken, or Faulted when the server sends us elsewhere."""
        if headers is _NO_HEADERS:
            headers = self._headers
        limit_s = self.options.request_timeout_s if silence_s is None else silence_s
        try:
            answer = await self._border.send(method, path, headers, body=body, silence_s=limit_s)
        except Broken as broken:
            self.note(broken)
            raise
        except Misdirected as exc:
            raise self.deviates(str(exc)) from exc
        self._heard_at = self.now()
        return answer

    async def stream(self, path: str, headers: Mapping[str, str], body: bytes) -> Stream:
        """One request whose answer is read as it comes; ``let_go`` ends that. Raises as ``send``.

        Belongs into a block of ``silence.watch``.
        """
        try:
            stream = await self._border.open("POST", path, headers, body=body)
        except Misdirected as exc:
            raise self.deviates(str(exc)) from exc
        self._heard_at = self.now()
        return stream

    def let_go(self, stream: Stream) -> None:
        """Nobody reads on. Of a stream that ended only the very last bytes may be missing."""
        if stream.at_end:
            stream.close()
        else:
            self.spawn(_drain(stream))

    def deviates(self, what: str) -> Faulted:
        """The fault for an answer that is not ORS."""
        return Faulted("internal", f"{self.name} {what}")

    def note(self, broken: Broken) -> None:
        """A request failed: look what is the matter."""
        if broken.unreachable:
            self._went_down(str(broken))
        self._suspected.set()

    # sessions

    async def open(self, request: OpenSession, listener: Listener) -> RemoteHandle:
        """As ``Runtime.open``; raises Starting while the server is down."""
        self._check_up()
        sid = str(uuid.uuid4()) if self.ours else await self._new_sid()
        headers = {**self._headers, SESSION_ID: sid}
        if request.run is not None:
            headers[RUN] = request.run
        handle = RemoteHandle(self, sid, env_path(request.key), headers, listener)
        creating = self.spawn(self._create(request, headers))
        try:
            answer = await asyncio.shield(creating)
        except asyncio.CancelledError:
            self.spawn(self._give_up(creating, headers))
            raise
        self.sessions.add(handle)
        if answer.headers.get(STATE, "") == "ready":
            listener.setup_ended(None)
        else:
            self.spawn(handle.watch_setup())
        return handle

    async def _new_sid(self) -> str:
        """A session id from the server, which sends it as JSON or as a stream."""
        headers = {**self.json_headers, "Accept": "text/event-stream"}
        try:
            answer = await self.send("POST", "/create_session", headers, b"{}")
        except Broken as broken:
            raise self._starting(broken) from broken
        if answer.status != 200:
            raise error_of(answer, self.name)
        sid = _sid_of(answer)
        if not sid:
            raise self.deviates("answered POST /create_session without a session id")
        return sid

    async def _create(self, request: OpenSession, headers: Mapping[str, str]) -> Answer:
        body: dict[str, Any] = {"env_name": request.key}
        if request.task_spec is not None:
            body["task_spec"] = request.task_spec
        else:
            body |= {"split": request.split, "index": request.index}
        if request.toolset_name is not None:
            body["toolset_name"] = request.toolset_name
        sent = {**headers, "Content-Type": "application/json"}
        if request.secrets and self._secrets_in_body:
            body["secrets"] = request.secrets
        elif request.secrets:
            sent[SECRETS] = encode_secrets(request.secrets)
        content = to_json(body)
        patience = Patience()
        may_exist = False
        while True:
            try:
                answer = await self.send(
                    "POST", "/create", sent, content, silence_s=self.options.hook_limit_s
                )
            except Broken as broken:
                may_exist = may_exist or broken.may_have_run
                delay = None if broken.unreachable and not may_exist else patience.next_s()
                if delay is None and may_exist:
                    self.spawn(self._delete_quietly(headers))
                    raise OpeningLost(f"{self.name} broke off: {broken}; open the session again") from broken
                if delay is None:
                    raise self._starting(broken) from broken
                await asyncio.sleep(delay)
                continue
            if answer.status == 200 or (may_exist and _already_exists(answer)):
                return answer
            raise error_of(answer, self.name, fault="setup_error", refusal=BadTask)

    async def _give_up(self, creating: asyncio.Task[Answer], headers: Mapping[str, str]) -> None:
        """A session that nobody wants any more, wherever its opening stands."""
        await self._delete_quietly(headers)
        await asyncio.wait([creating])
        if creating.cancelled() or creating.exception() is None:
            await self._delete_quietly(headers)  # it was opened after all

    async def _delete_quietly(self, headers: Mapping[str, str]) -> None:
        with contextlib.suppress(Broken, Faulted):
            await self.delete(headers)

    async def delete(self, headers: Mapping[str, str]) -> Answer:
        """End a session, and wait until it is torn down. Raises Broken."""
        patience = Patience()
        while True:
            try:
                answer = await self.send("POST", "/delete", headers)
                break
            except Broken:
                delay = patience.next_s() if self.up else None
                if delay is None:
                    raise
            await asyncio.sleep(delay)
        if not self.ours:  # to some hosted servers this means something
            with contextlib.suppress(Broken):
                await self.send("POST", "/delete_session", headers)
        return answer

    def forget(self, session: RemoteHandle) -> None:
        self.sessions.discard(session)

    def _check_up(self) -> None:
        if not self.up:
            raise Starting(f"{self.name} is not up: {self.problem}; it is tried again")

    def _starting(self, broken: Broken) -> Starting:
        return Starting(f"{self.name} cannot be reached: {broken}; it is tried again")

    # watching

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                await self._look()
            except (Broken, Faulted) as error:
                failures += 1
                self._silent += 1
                certain = isinstance(error, Broken) and error.unreachable
                if certain or not self.up or self._silent >= _SILENT_LIMIT:
                    self._went_down(str(error))
            except Unusable as error:
                failures += 1
                if not self._first.done():
                    self._first.set_exception(LoadError(f"{self.label} {error}"))
                    return
                self._went_down(str(error))
            except Exception:
                failures += 1
                _log.exception("upstream_watch_failed", upstream=self.label)
            else:
                failures = self._silent = 0
            pause_s = self.options.health_s
            if failures:
                await asyncio.sleep(backoff_s(failures, pause_s))
                continue
            self._suspected.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._suspected.wait()

    async def _look(self) -> None:
        """Make sure that the server is up. Raises Broken, Faulted or Unusable."""
        now = self.now()
        if not self.up or now - self._looked_at > _LOOK_AGAIN_S:
            self._looked_at = now
            self._came_up(await discover(self._get))
        elif self._suspected.is_set() or now - self._heard_at > self.options.health_s:
            answer = await self._get("/health")
            if answer.status >= 500:
                raise Broken(f"GET /health: {answer.status} {detail_of(answer)}", may_have_run=True)

    async def _get(self, path: str) -> Answer:
        try:
            return await self._border.send(
                "GET", path, self._headers, silence_s=self.options.request_timeout_s
            )
        except Misdirected as exc:
            raise Unusable(str(exc)) from exc

    def _came_up(self, found: Found) -> None:
        news = not self.up or found.environments != self.environments
        self.environments = found.environments
        self.ours = found.ours
        self._secrets_in_body = not found.versioned
        self._heard_at = self.now()
        if not self.up:
            self.up = True
            names = [info.name for info in found.environments]
            _log.info("upstream_up", upstream=self.label, environments=names)
        if not self._first.done():
            self._first.set_result(None)
        if news:
            self._changed()

    def _went_down(self, problem: str) -> None:
        was_up, self.up, self.problem = self.up, False, problem
        if was_up:
            _log.warning("upstream_down", upstream=self.label, reason=problem, sessions=len(self.sessions))
            self._changed()
            self._suspected.set()

    async def _keep_alive(self) -> None:
        """Ping the sessions that were quiet for long."""
        pause_s = max(0.05, self.options.ping_s / 8)
        while True:
            await asyncio.sleep(pause_s)
            if not self.up:
                continue
            before = self.now() - self.options.ping_s + pause_s
            due = [session for session in self.sessions if session.touched_at < before]
            slots = asyncio.Semaphore(_PINGS_AT_ONCE)

            async def ping(session: RemoteHandle, slots: asyncio.Semaphore = slots) -> None:
                async with slots:
                    if session in self.sessions:
                        await session.ping()

            await asyncio.gather(*map(ping, due), return_exceptions=True)


async def _drain(stream: Stream) -> None:
    with contextlib.suppress(Broken, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while await stream.read():
                pass
    stream.close()


def _already_exists(answer: Answer) -> bool:
    return answer.status in (400, 409) and "already exists" in detail_of(answer).lower()


def _sid_of(answer: Answer) -> str:
    if "event-stream" not in answer.headers.get("content-type", ""):
        return _sid(answer.json())
    sid = ""
    for event in Decoder().feed(answer.body):
        if event.event == "task_id":
            sid = event.data.strip()
        elif event.event == "end" and event.data.strip():
            with contextlib.suppress(ValueError):
                sid = _sid(from_json(event.data)) or sid
    return sid


def _sid(raw: Any) -> str:
    sid = raw.get("sid") if isinstance(raw, dict) else None
    return sid if isinstance(sid, str) and sid.isascii() and sid.isprintable() else ""


def _nothing() -> None:
    return None
