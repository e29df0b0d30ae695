"""Connection to an agent: jobs multiplexed over one stream.

Both sides send frames (length, kind, job, payload; see ``source/agent.c``). Standard input flows by credit,
as HTTP/2's streams do (RFC 9113, section 5.2): the agent tells what a command has taken.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from ...errors import SandboxGone
from . import AGENT_VERSION

__all__ = ["AgentConnection", "Job", "JobEnd", "Reason"]

_HEADER = struct.Struct("<IBI")
_START, _INPUT, _KILL, _ALIVE, _HALT = 1, 2, 3, 4, 5
_OUTPUT, _ERRORS, _TAKEN, _END, _HELLO, _BEAT = 1, 2, 3, 4, 5, 6
_WITH_INPUT, _APART, _FILES, _SERVICE = 1, 2, 4, 8
_LARGEST_FRAME = 32 << 20
_LONGEST_LIMIT_S = 1e9
_UNANSWERED = 3  # signs of life, a third of a lease apart
_LIMITS = struct.Struct("<IQQ")  # flags, bytes of output to send, milliseconds
_ENDED = struct.Struct("<iBQQ")  # status, reason, bytes of output, microseconds
_LENGTH = struct.Struct("<I")
_NO_LIMIT = 2**64 - 1
_CREDIT = 256 * 1024
_PIECE = 64 * 1024


class Reason(IntEnum):
    """Why a job ended."""

    EXITED = 0
    TIMED_OUT = 1
    KILLED = 2
    NOT_STARTED = 3
    LOST = 4
    """Its supervisor was killed from within the sandbox."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job."""

    status: int
    """Exit code; 128 + n for signal n; 124 after its time limit; 126 or 127 when it could not be started."""
    reason: Reason
    output_bytes: int
    """Written by the command, sent or not."""
    duration_s: float
    error: str
    """Why it could not be started, or was killed."""


@dataclass(eq=False, slots=True)
class Job:
    """A running command. ``end`` raises SandboxGone."""

    number: int
    end: asyncio.Future[JobEnd]
    on_output: Callable[[bytes], None]
    on_errors: Callable[[bytes], None]
    credit: int = _CREDIT
    killed_for: str = ""
    is_service: bool = False
    """True for one of the sandbox's own, which no command is to blame for."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class AgentConnection(asyncio.Protocol):
    """The server's end of the stream.

    A sandbox that hears nothing for a lease ends, so there is a sign of life each third of one.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._held = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._gone = ""
        self._unanswered = 0
        self._paused = 0
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ready.add_done_callback(_noticed)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's are instances of nothing
        if self._gone:
            self._transport.abort()
        else:
            self._say_alive()

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        at = 0
        while len(held) - at >= _HEADER.size:
            length, kind, number = _HEADER.unpack_from(held, at)
            start = at + _HEADER.size
            if len(held) < start + length:
                break
            at = start + length
            self._received(kind, number, bytes(held[start:at]))
        del held[:at]

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lose("the connection to it broke" if exc is None else f"the connection to it broke: {exc}")

    # life

    async def ready(self) -> None:
        """Wait for the agent's first word. Raises SandboxGone."""
        await asyncio.shield(self._ready)

    @property
    def gone(self) -> SandboxGone | None:
        """Why the sandbox can no longer be used."""
        return SandboxGone(self._gone) if self._gone else None

    def lose(self, reason: str) -> None:
        """End all jobs with SandboxGone, and close the connection. The first reason stays."""
        if self._gone:
            return
        self._gone = f"the sandbox is gone: {reason}"
        if self._beat is not None:
            self._beat.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting: list[asyncio.Future[Any]] = [self._ready, *(job.end for job in self._jobs.values())]
        for future in waiting:
            if not future.done():
                future.set_exception(SandboxGone(self._gone))
        for job in self._jobs.values():
            job.changed.set()
        self._jobs.clear()

    def _say_alive(self) -> None:
        if self._unanswered >= _UNANSWERED and not self._paused:
            self.lose(f"it did not answer for {self._lease_s:g} s")
            return
        self._unanswered += 1
        self._send(_ALIVE, 0)
        self._beat = asyncio.get_running_loop().call_later(self._lease_s / 3, self._say_alive)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the sandbox is frozen from outside, and so cannot answer."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            self._unanswered = 0

    # jobs

    def start(
        self,
        words: Sequence[str],
        *,
        user: str = "",
        folder: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        script: bytes = b"",
        with_input: bool = False,
        file_operation: bool = False,
        is_service: bool = False,
        on_output: Callable[[bytes], None] = lambda data: None,
        on_errors: Callable[[bytes], None] | None = None,
    ) -> Job:
        """Start a command. ``script`` is what it reads from descriptor 3.

        Without ``on_errors``, both outputs come as one stream, in order. Raises SandboxGone, and ValueError
        for texts with a NUL or lone surrogates, limits out of range, commands over 32 MiB.
        """
        if self._gone:
            raise SandboxGone(self._gone)
        flags = (_WITH_INPUT if with_input else 0) | (_APART if on_errors else 0)
        flags |= (_FILES if file_operation else 0) | (_SERVICE if is_service else 0)
        limit = _NO_LIMIT if max_bytes is None else max_bytes
        if not 0 <= limit <= _NO_LIMIT or not 0 <= (timeout_s or 0) <= _LONGEST_LIMIT_S:
            raise ValueError(f"limits out of range: {max_bytes} bytes, {timeout_s} s")
        pairs = [f"{name}={value}" for name, value in (variables or {}).items()]
        timeout_ms = 0 if timeout_s is None else max(1, round(timeout_s * 1000))
        parts = (
            _LIMITS.pack(flags, limit, timeout_ms),
            *(_text(user), _text(folder), _texts(words), _texts(pairs)),
            *(_LENGTH.pack(len(script)), script),
        )
        payload = b"".join(parts)
        if len(payload) > _LARGEST_FRAME:
            raise ValueError(f"a command of {len(payload)} bytes; {_LARGEST_FRAME} are the most")
        number = next(self._numbers)
        end: asyncio.Future[JobEnd] = asyncio.get_running_loop().create_future()
        end.add_done_callback(_noticed)
        job = self._jobs[number] = Job(number, end, on_output, on_errors or on_output, is_service=is_service)
        self._send(_START, number, payload)
        return job

    async def feed(self, job: Job, data: bytes) -> None:
        """Send all of its standard input, at the pace it takes it, and the end of it."""
        rest = memoryview(data)
        while len(rest) and not job.end.done():
            if job.credit <= 0:
                job.changed.clear()
                await job.changed.wait()
                continue
            piece = rest[: min(_PIECE, job.credit)]
            job.credit -= len(piece)
            self._send(_INPUT, job.number, bytes(piece))
            rest = rest[len(piece) :]
        self._send(_INPUT, job.number)

    def abandon(self, job: Job) -> None:
        """Kill it, and drop what it still writes."""
        job.on_output = job.on_errors = _drop
        self.kill(job)

    def kill(self, job: Job, signal: int = 0) -> None:
        """Send a signal to its process group; 0 kills all that it has started."""
        self._send(_KILL, job.number, bytes([signal]))

    def kill_all(self, reason: str) -> int:
        """Kill all jobs but services, and give that as the reason; returns how many lacked one."""
        count = 0
        for job in self._jobs.values():
            if job.is_service:
                continue
            count += not job.killed_for
            job.killed_for = job.killed_for or reason
            self.kill(job)
        return count

    def halt(self) -> None:
        """Have process 1 kill all that runs but services, before it does what is asked of it next."""
        self._send(_HALT, 0)

    def _received(self, kind: int, number: int, payload: bytes) -> None:
        self._unanswered = 0
        if kind == _HELLO:
            if payload[0] != AGENT_VERSION:
                self.lose(f"its agent has version {payload[0]}, not {AGENT_VERSION}")
            elif not self._ready.done():
                self._ready.set_result(None)
            return
        job = self._jobs.get(number)
        if job is None:
            return
        if kind in (_OUTPUT, _ERRORS):
            try:
                (job.on_output if kind == _OUTPUT else job.on_errors)(payload)
            except Exception as exc:  # of the caller's function
                self.abandon(job)
                if not job.end.done():
                    job.end.set_exception(exc)
        elif kind == _TAKEN:
            job.credit += _LENGTH.unpack(payload)[0]
            job.changed.set()
        elif kind == _END:
            status, reason, output_bytes, took_us = _ENDED.unpack_from(payload)
            error = payload[_ENDED.size :].decode(errors="replace")
            if reason == Reason.KILLED and not error:
                error = job.killed_for
            del self._jobs[number]
            job.changed.set()
            if not job.end.done():
                job.end.set_result(JobEnd(status, Reason(reason), output_bytes, took_us / 1e6, error))

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        if not self._gone and self._transport is not None:
            self._transport.write(_HEADER.pack(len(payload), kind, number) + payload)


def _drop(data: bytes) -> None:
    """Take output that nobody reads."""


def _noticed(future: asyncio.Future[Any]) -> None:
    """Have asyncio not complain of an exception that nobody waits for."""
    if not future.cancelled():
        future.exception()


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("a text with a NUL cannot be part of a command")
    return _LENGTH.pack(len(raw)) + raw


def _texts(values: Sequence[str]) -> bytes:
    return _LENGTH.pack(len(values)) + b"".join(_text(each) for each in values)
