"""``Sessions`` on objects, without HTTP and processes: on a runtime that the test scripts, or a local one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orsay import Environment
from orsay.errors import Faulted, Refused
from orsay.faults import FaultLog
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.write.writer import Writer
from orsay.runtimes.base import (
    EnvironmentInfo,
    Listener,
    OnResult,
    OpenSession,
    Operation,
    Progress,
    Runtime,
    Stop,
    TaskQuery,
)
from orsay.runtimes.execution.episode import Limits
from orsay.runtimes.local import LocalRuntime
from orsay.runtimes.outcome import Outcome
from orsay.sessions.call import task_ids
from orsay.sessions.calls import CallTotals
from orsay.sessions.limits import CallLimits, SessionLimits
from orsay.sessions.meter import Meter
from orsay.sessions.recorder import Recorder
from orsay.sessions.recovery import Recovery
from orsay.sessions.registry import Sessions
from orsay.sessions.session import Session
from orsay.sessions.shared import Shared
from orsay_protocol.sse import encode_result
from orsay_protocol.tools import ListToolsOutput

__all__ = [
    "JournaledSessions",
    "ScriptedHandle",
    "ScriptedOperation",
    "ScriptedRuntime",
    "call_limits",
    "ended",
    "environment_info",
    "local_runtime",
    "make_sessions",
    "make_shared",
    "request_of",
    "run_ready",
    "session_limits",
]


def environment_info(name: str = "Rooms", **more: Any) -> EnvironmentInfo:
    """An environment without tools or splits; ``more`` are other fields."""
    facts: dict[str, Any] = {
        "description": "",
        "listing": ListToolsOutput(tools=[]),
        "splits": (),
        "supports_score_group": False,
        "call_time_limit_s": None,
        "setup_time_limit_s": None,
        "tool_time_limits_s": {},
        "detached_tools": frozenset(),
    }
    return EnvironmentInfo(name=name, key=name.lower(), **facts | more)


def request_of(info: EnvironmentInfo, index: int = 0, **more: Any) -> OpenSession:
    """A request for a session of ``train``."""
    return OpenSession(key=info.key, split="train", index=index, **more)


def ended(value: str = "{}", *, reward: float | None = None, finished: bool = False) -> Outcome:
    """Outcome of a call that returned that JSON."""
    return Outcome(encode_result(value.encode()), reward, finished)


async def run_ready() -> None:
    """Run what waits for nothing outside the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass
class ScriptedOperation:
    """One operation that was started; the test ends it by ``on_result(value, error)``."""

    operation: Operation
    body: bytes
    limit_s: float
    on_result: OnResult
    progress: Progress | None
    stopped: int = 0


@dataclass
class ScriptedHandle:
    """An open session, and what was asked of it. ``answers`` end operations at once, in their order."""

    request: OpenSession
    listener: Listener
    answers: list[Outcome | bytes | Faulted | Refused] = field(default_factory=list)
    started: list[ScriptedOperation] = field(default_factory=list)
    closed: int = 0
    close_gate: asyncio.Event | None = None
    close_error: Faulted | Refused | None = None

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        made = ScriptedOperation(operation, body, limit_s, on_result, progress)
        self.started.append(made)
        if self.answers:
            answer = self.answers.pop(0)
            failed = isinstance(answer, Faulted | Refused)
            on_result(None if failed else answer, answer if isinstance(answer, Faulted | Refused) else None)

        def stop() -> None:
            made.stopped += 1
            on_result(None, Faulted("cancelled", "stopped"))

        return stop

    async def close(self) -> None:
        self.closed += 1
        if self.close_gate is not None:
            await self.close_gate.wait()
        if self.close_error is not None:
            raise self.close_error


class ScriptedRuntime:
    """Runtime of one environment. The constructor waits for ``gate``, and setup is over with it, unless the
    test says otherwise."""

    def __init__(self, info: EnvironmentInfo | None = None) -> None:
        self.info = info or environment_info()
        self.handles: list[ScriptedHandle] = []
        self.gate: asyncio.Event | None = None
        self.open_error: BaseException | None = None
        self.ends_setup = True
        self.setup_error: Faulted | Refused | None = None
        self.answers: list[Outcome | bytes | Faulted | Refused] = []
        """Answers of the next handle."""
        self.pending: Sequence[str] = ()

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        return (self.info,)

    @property
    def last(self) -> ScriptedHandle:
        return self.handles[-1]

    async def start(self) -> None:
        pass

    async def open(self, request: OpenSession, listener: Listener) -> ScriptedHandle:
        if self.gate is not None:
            await self.gate.wait()
        if self.open_error is not None:
            raise self.open_error
        handle = ScriptedHandle(request, listener, self.answers)
        self.answers = []
        self.handles.append(handle)
        if self.ends_setup:
            listener.setup_ended(self.setup_error)
        return handle

    async def tasks(self, query: TaskQuery) -> bytes:
        return b"[]"

    async def stop(self) -> None:
        pass


def session_limits(**more: Any) -> SessionLimits:
    limits: dict[str, Any] = {
        "max_sessions": 100_000,
        "max_sessions_per_owner": None,
        "max_calls": 1000,
        "idle_limit_s": 600,
        "lifetime_limit_s": 600,
        "call_time_limit_s": 60,
        "setup_wait_s": 5,
        "load_wait_s": 4,
        "client_grace_s": 60,
        "gone_memory_s": 600,
    }
    return SessionLimits(**limits | more)


def call_limits(**more: Any) -> CallLimits:
    limits: dict[str, Any] = {
        "results_per_session": 100,
        "bytes_per_session": 10**6,
        "bytes_in_all": 10**7,
        "age_s": 600,
    }
    return CallLimits(**limits | more)


def make_sessions(
    runtime: Runtime,
    *,
    recorder: Recorder | None = None,
    recovery: Recovery | None = None,
    needs_journal: bool = False,
    meter: Meter | None = None,
    now: Callable[[], float] = time.monotonic,
    **limits: Any,
) -> Sessions:
    """Sessions with wide bounds; ``limits`` are fields of SessionLimits or CallLimits that differ."""
    of_calls = {name: limits.pop(name) for name in list(limits) if name in CallLimits.__slots__}
    return Sessions(
        runtime,
        session_limits(**limits),
        call_limits(**of_calls),
        FaultLog(show=True),
        recorder=recorder,
        recovery=recovery,
        needs_journal=needs_journal,
        meter=meter,
        now=now,
    )


def make_shared(**more: Any) -> Shared[Session]:
    """For a Session without a table around it. Needs a running event loop."""

    def on_lost(session: Session, fault: str, reason: str) -> None:
        pass

    facts: dict[str, Any] = {
        "limits": session_limits(),
        "totals": CallTotals(call_limits()),
        "faults": FaultLog(show=True),
        "task_ids": task_ids(),
        "now": asyncio.get_running_loop().time,
        "on_lost": on_lost,
        "evict": lambda call: None,
        "log_calls": False,
        "meter": Meter(),
    }
    return Shared(**facts | more)


class JournaledSessions:
    """Sessions of a ``runtime`` over a real journal, in this process: what a server has below HTTP."""

    def __init__(self, runtime: Runtime, file: Path, name: str = "a-server", **limits: Any) -> None:
        self.runtime = runtime
        self.writer = Writer(JournalOptions(journal_url(str(file))))
        self.recovery = Recovery(recorder := Recorder(self.writer, name), runtime)
        self.sessions = make_sessions(runtime, recorder=recorder, recovery=self.recovery, **limits)

    async def start(self) -> None:
        """Return when the sessions of before are known."""
        self.writer.start()
        await self.runtime.start()
        self.sessions.start()
        async with asyncio.timeout(30):
            while not self.recovery.known:
                await asyncio.sleep(0.001)

    async def kill(self) -> None:
        """End as a killed server does for the journal, which gets nothing more."""
        await self.writer.close()
        await self.sessions.close_all()
        await self.runtime.stop()

    async def stop(self) -> None:
        """End in order."""
        await self.sessions.close_all()
        await self.runtime.stop()
        await self.writer.close()


def local_runtime(*classes: type[Environment], threads: int = 8) -> LocalRuntime:
    """Environments in this process."""
    limits = Limits(
        call_time_limit_s=60, setup_time_limit_s=60, teardown_time_limit_s=5, max_result_bytes=100_000
    )
    return LocalRuntime(list(classes), limits, threads=threads)
