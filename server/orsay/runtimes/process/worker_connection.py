"""Connection to one worker process: the process, the socket, pending requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from orsay_protocol.faults import FaultClass
from pydantic_core import from_json

from ...errors import Faulted, LoadError, Refused
from ...logs import get_logger
from ..base import EnvironmentInfo, Listener, OnResult, Progress, Stop, settle, stop_nothing
from .frames import FrameReader, Kind, Outbox, WorkerConfig, read_error, unpack_outcome

__all__ = ["WORKER_MODULE", "WorkerConnection"]

_log = get_logger(__name__)
WORKER_MODULE = "orsay.runtimes.process.worker"
_END_GRACE_S = 3.0
_EXIT_WAIT_S = 2.0


_NONE = (None, 0.0, None)
_Pending: TypeAlias = tuple[OnResult, float, Progress | None]
"""A pending request: its callback, its deadline, and the callback of its progress."""


class WorkerConnection(asyncio.Protocol):
    """Connection to a worker, made by ``launch``. Each request gets a result, even if the process dies."""

    def __init__(self, lost: Callable[[WorkerConnection, str], None], hash_seed: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._hash_seed = hash_seed
        self._reader = FrameReader()
        self._pending: dict[int, _Pending] = {}
        self._listeners: dict[int, Listener] = {}
        self._setups: dict[int, float] = {}
        self._next = 0
        self._received_at = self._loop.time()
        self._hello: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._connected = False
        self._ending = False
        self._killed: str | None = None
        self._heartbeat_due = False
        self._process: asyncio.subprocess.Process
        self._outbox: Outbox
        self._transport: asyncio.WriteTransport
        self.environments: tuple[EnvironmentInfo, ...] = ()
        self.retiring = False
        self.blocked = False
        self.sessions = 0
        self.opened = 0
        self.rss_bytes = 0
        self.stuck = 0

    @classmethod
    async def launch(
        cls, config: WorkerConfig, limit_s: float, lost: Callable[[WorkerConnection, str], None]
    ) -> WorkerConnection:
        """Start a process and wait until it has loaded the environments. Raises LoadError."""
        ours, theirs = socket.socketpair()
        connection = cls(lost, None if config.hash_seed == "random" else config.hash_seed)
        try:
            connection._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                WORKER_MODULE,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,
                env={
                    **_surroundings(config.hidden_variables),
                    **config.variables,
                    "PYTHONHASHSEED": str(config.hash_seed),
                },
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            ours.setblocking(False)
            await connection._loop.create_unix_connection(lambda: connection, sock=ours)
            connection._connected = True
            connection._send_config(config)
            async with asyncio.timeout(limit_s):
                await connection._hello
        except TimeoutError:
            await connection.end()
            raise LoadError(f"a worker process did not load the environments within {limit_s:g} s") from None
        except BaseException:
            await connection.end()
            raise
        return connection

    def _send_config(self, config: WorkerConfig) -> None:
        self._outbox.send(0, 0, config.model_dump_json().encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def gone(self) -> bool:
        """True once the process has closed its end of the socket, even if it is not reaped yet."""
        return self._closed.done()

    @property
    def idle(self) -> bool:
        """True if no request is pending, except for a heartbeat."""
        return len(self._pending) <= self._heartbeat_due

    # requests

    def start(
        self,
        kind: int,
        payload: bytes,
        on_result: OnResult,
        limit_s: float,
        progress: Progress | None = None,
        *,
        session: int = 0,
    ) -> Stop:
        """Send a request. After ``limit_s`` the worker may be killed if it misses heartbeats too."""
        if self._closed.done():
            on_result(None, Faulted("worker_lost", self._killed or "the worker process is gone"))
            return stop_nothing
        self._next = number = (self._next + 1) & 0xFFFFFFFF
        self._pending[number] = on_result, self._loop.time() + limit_s, progress
        self._outbox.send(kind, number, payload, session=session)
        return partial(self.stop_request, number)

    async def ask(self, kind: int, payload: bytes, limit_s: float, *, session: int = 0) -> bytes:
        """Send a request and wait for its answer. Raises Faulted or Refused."""
        future: asyncio.Future[Any] = self._loop.create_future()

        stop = self.start(kind, payload, settle(future), limit_s, session=session)
        try:
            data: bytes = await future
        except asyncio.CancelledError:
            stop()
            raise
        return data

    def stop_request(self, number: int) -> None:
        """Have the worker stop a running request."""
        if number in self._pending and not self._closed.done():
            self._outbox.send(Kind.STOP, number, b"the call was cancelled")

    def attach(self, listener: Listener, setup_limit_s: float) -> int:
        """Assign a number to a new session, whose events go to ``listener``.

        An unresponsive worker may be killed if setup is not over after ``setup_limit_s``.
        """
        self._next = number = (self._next + 1) & 0xFFFFFFFF
        self._listeners[number] = listener
        self._setups[number] = self._loop.time() + setup_limit_s
        self.sessions += 1
        self.opened += 1
        return number

    def set_up(self, number: int) -> None:
        """Note the end of the session's setup."""
        self._setups.pop(number, None)

    def mute(self, number: int) -> None:
        """Remove the listener of a session that is being closed."""
        self._listeners.pop(number, None)
        self._setups.pop(number, None)

    def detach(self, number: int) -> None:
        self.mute(number)
        self.sessions -= 1

    # watching

    def heartbeat(self) -> None:
        """Send a heartbeat, unless one is pending."""
        if self._heartbeat_due or self._closed.done():
            return
        self._heartbeat_due = True
        self._next = number = (self._next + 1) & 0xFFFFFFFF
        self._pending[number] = self._beat, float("inf"), None
        self._outbox.send(Kind.HEARTBEAT, number)
        self._asked = self._loop.time()

    def _beat(self, value: Any, error: Faulted | Refused | None) -> None:
        self._heartbeat_due = self.blocked = False
        if error is None:
            state = from_json(value)
            self.rss_bytes, self.stuck = state["rss_bytes"], state["stuck"]

    def show_stack(self) -> None:
        """Have the worker write its stacks to standard error; works while it is blocked."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)

    def silent_s(self) -> float:
        """Seconds without data from the worker while a heartbeat is pending, else 0."""
        return self._loop.time() - max(self._received_at, self._asked) if self._heartbeat_due else 0.0

    def kill_if_overdue(self) -> None:
        """Kill the unresponsive worker if a call or a setup is past its limit.

        The one with the earliest deadline fails with ``time_limit``, all others with ``worker_lost``.
        """
        now = self._loop.time()
        calls = [(deadline, number) for number, (_, deadline, _) in self._pending.items() if deadline < now]
        setups = [(deadline, number) for number, deadline in self._setups.items() if deadline < now]
        if self._killed or not (calls or setups):
            return
        self._kill("another session's code blocked the worker process past its time limit")
        text = "author code ran past its time limit and blocked its worker process, which was killed"
        culprit = Faulted("time_limit", text)
        deadline, number = min(calls + setups)
        if (deadline, number) in calls:
            on_result, _, _ = self._pending.pop(number)
            on_result(None, culprit)
        else:
            self.set_up(number)
            self._listeners.pop(number).setup_ended(culprit)

    def _kill(self, reason: str) -> None:
        self._killed = reason
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """End the process: by a request, and by SIGKILL if it does not end in time."""
        self._ending = True
        if not self._connected:  # the start was interrupted: no frame can be sent
            self._kill("the worker process is not needed any more")
        elif not self._closed.done() and not self._transport.is_closing():
            self._outbox.send(Kind.EXIT, 0)
        try:
            async with asyncio.timeout(_END_GRACE_S):
                await self._process.wait()
        except TimeoutError:
            self._kill("the worker process did not end when asked")
            await self._process.wait()
        if hasattr(self, "_transport"):
            self._transport.close()

    # the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's are not subclasses
        self._outbox = Outbox(self._transport.write)
        self._asked = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        for kind, number, session, payload in self._reader.feed(data):
            try:
                if kind == Kind.OUTCOME:
                    pending = self._pending.pop(number, None)
                    if pending is not None:
                        pending[0](unpack_outcome(payload), None)
                elif kind in (Kind.DATA, Kind.STATE):
                    pending = self._pending.pop(number, None)
                    if pending is not None:
                        pending[0](payload, None)
                else:
                    self._on_frame(kind, number, session, payload)
            except Exception:
                if not self._hello.done():  # the worker cannot be used
                    raise
                # the next frames belong to other sessions
                _log.exception("worker_callback_failed", kind=kind)

    def _on_frame(self, kind: int, number: int, session: int, payload: bytes) -> None:
        match kind:
            case Kind.SLOW:
                _, _, progress = self._pending.get(number, _NONE)
                if progress is not None:
                    progress(b"")
            case Kind.ERROR if number:
                pending = self._pending.pop(number, None)
                if pending is not None:
                    pending[0](None, read_error(payload))
            case Kind.ERROR:
                if not self._hello.done():
                    self._hello.set_exception(LoadError(from_json(payload)["load"]))
            case Kind.SETUP_DONE | Kind.SETUP_ERROR:
                self.set_up(session)
                listener = self._listeners.get(session)
                if listener is not None:
                    listener.setup_ended(None if kind == Kind.SETUP_DONE else read_error(payload))
            case Kind.HELLO:
                hello = from_json(payload)
                described = hello["environments"]
                if hello["without_folders"]:
                    _log.warning("data_not_shown", worker=self.pid, reason=hello["without_folders"])
                known_here = {"in_order": True, "hash_seed": self._hash_seed}
                self.environments = tuple(
                    EnvironmentInfo.model_validate({**each, **known_here}) for each in described
                )
                if not self._hello.done():
                    self._hello.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._outbox.close()
        if not self._closed.done():
            self._closed.set_result(None)
        if self._ending:
            self._fail("the worker process was stopped", "shutdown")
            return
        self._reaper = self._loop.create_task(self._reap())

    async def _reap(self) -> None:
        try:
            async with asyncio.timeout(_EXIT_WAIT_S):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
        reason = self._killed or f"the worker process {_death(code)}"
        self._fail(reason, "worker_lost")

    def _fail(self, reason: str, fault: FaultClass) -> None:
        if not self._hello.done():
            self._hello.set_exception(LoadError(f"{reason} while it loaded the environments"))
            self._hello.exception()
        self._lost(self, reason)  # first, so that the log has the number of sessions
        pending, self._pending = self._pending, {}
        listeners, self._listeners = self._listeners, {}
        calls = [partial(on_result, None, Faulted(fault, reason)) for on_result, _, _ in pending.values()]
        losses = [partial(listener.lost, fault, reason) for listener in listeners.values()]
        for report in calls + losses:
            try:
                report()
            except Exception:  # the next ones belong to other sessions
                _log.exception("worker_callback_failed", fault=fault)


def _surroundings(hidden: Sequence[str]) -> dict[str, str]:
    """Environment of a worker: that of this process without keys, since author code can read it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and name.upper() != "ORSAY_API_KEYS" and not _is_key_of_entry(name.upper())
    }


def _is_key_of_entry(name: str) -> bool:
    return name.startswith("ORSAY_ENVIRONMENTS__") and name.endswith(("__API_KEY", "__VARIABLES"))


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"was killed by {name}"
