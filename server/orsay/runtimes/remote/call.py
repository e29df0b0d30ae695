"""One call or group score at an upstream, resumed over broken connections until the result is complete.

Invariant: a tool runs at most once. Before the stream has sent the task id, the request is repeated only if
nothing can have run, or if the upstream honours idempotency keys; after that the request attaches to the
running call, and data that was already forwarded is skipped.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from orsay_protocol.faults import FaultClass
from orsay_protocol.headers import IDEMPOTENCY_KEY
from orsay_protocol.redact import Redactor
from pydantic_core import from_json, to_json

from ...errors import Faulted
from ..base import Operation, Progress
from ..outcome import Outcome
from .answers import error_of, fault_of, is_from_between
from .backoff import Backoff
from .events import EventReader, Passed, TextTracker, TooLong, guarded, has_space_at_edge
from .http import Answer, Broken, Stream
from .read_timeouts import Reading
from .results import NotANumber, NotAResult, check_scores, read_result
from .upstream import Upstream

__all__ = ["CallerSession", "RemoteCall"]

_PROGRESS_S = 5.0  # a stream of this age counts as progress, and resets the failures


class CallerSession(Protocol):
    """Interface of the call's session; ``handle.RemoteHandle`` implements it."""

    upstream: Upstream
    prefix: str
    hide: Redactor

    @property
    def stream_headers(self) -> dict[str, str]: ...

    def abandon(self, key: str) -> None: ...

    async def gone(self, answer: Answer, *, sure: bool = True) -> Faulted | None: ...

    def mark_lost(self, fault: FaultClass, reason: str, *, left: bool = False) -> None: ...


class RemoteCall:
    """One call; ``run`` is awaited once."""

    __slots__ = (
        "_at",
        "_body",
        "_fault",
        "_headers",
        "_kept",
        "_operation",
        "_pieces",
        "_progress",
        "_session",
        "_size",
        "_task_id",
        "_text",
        "_upstream",
        "key",
    )

    def __init__(
        self, session: CallerSession, operation: Operation, body: bytes, progress: Progress | None
    ) -> None:
        self._session = session
        self._upstream = session.upstream
        self._operation = operation
        self._body = body
        self.key = os.urandom(16).hex()
        self._headers = {**session.stream_headers, IDEMPOTENCY_KEY: self.key}
        self._task_id: str | None = None
        self._pieces: list[bytes] = []  # of the result, as the upstream wrote them
        self._at = 0  # number of them received on this connection
        self._size = 0  # bytes forwarded
        self._text: TextTracker | None = None
        self._fault: Faulted | None = None
        self._kept: list[bytes] = []
        self._progress = self._kept.append if progress is None else progress

    async def run(self) -> Outcome:
        """The result, or its rest if ``progress`` got the beginning. Raises Faulted or Refused."""
        backoff = Backoff()
        upstream = self._upstream
        while True:
            since, size = upstream.now(), self._size
            try:
                return await self._once()
            except Broken as broken:
                upstream.note(broken)
                if broken.may_have_run and self._task_id is None and not upstream.ours:
                    raise self._lost(broken, "the call may have run, and this server cannot tell") from broken
                if self._size > size or upstream.now() - since > _PROGRESS_S:
                    backoff = Backoff()
                delay = backoff.next_s()
                if delay is None:
                    raise self._lost(broken, f"gave up after {backoff.failures} tries in a row") from broken
            except TooLong as exc:
                self._session.abandon(self.key)
                raise Faulted("result_too_large", str(exc)) from exc
            await asyncio.sleep(delay)

    def _lost(self, broken: Broken, hint: str) -> Faulted:
        text = f"{self._upstream.name}, which held the session, cannot be reached: {broken} ({hint})"
        self._session.mark_lost("worker_lost", text, left=True)
        return Faulted("worker_lost", text)

    async def _once(self) -> Outcome:
        with self._upstream.read_timeouts.watch() as reading:
            stream = await self._upstream.stream(self._path, self._headers, self._request())
            try:
                if stream.status != 200:
                    raise await self._refusal(await stream.whole())
                if not stream.is_events:
                    kind = stream.headers.get("content-type", "nothing")
                    raise self._upstream.deviates(f"answered a call with {kind}, not with a stream of events")
                return await self._read(stream, reading)
            finally:
                self._upstream.release(stream)

    @property
    def _path(self) -> str:
        return f"{self._session.prefix}/{self._operation}"

    def _request(self) -> bytes:
        if self._task_id is None:
            return self._body
        return to_json({**from_json(self._body), "task_id": self._task_id})

    async def _refusal(self, answer: Answer) -> Exception:
        gone = await self._session.gone(answer, sure=self._operation != "score_group")
        if gone is not None:
            return gone
        scoring = self._operation == "score_group"
        if not is_from_between(answer):
            return error_of(
                answer,
                self._upstream.name,
                self._session.hide,
                fault="score_error" if scoring else "tool_error",
            )
        broken = Broken(f"a proxy answered {answer.status}", may_have_run=True)
        if self._upstream.ours or self._task_id is not None:
            return broken
        return self._lost(broken, "the call may have run, and this server cannot tell")

    # the stream

    async def _read(self, stream: Stream, reading: Reading) -> Outcome:
        limit = self._upstream.options.max_result_bytes
        reader = EventReader(limit)
        self._at, self._fault = 0, None
        if self._upstream.ours and "content-length" not in stream.headers:
            self._progress(b"")  # report a slow call: a quick one is answered in one piece
        while data := await stream.read():
            reading.at = self._upstream.now()
            onward: list[bytes] = []
            for event in reader.feed(data):
                if event.name == "end":
                    return self._end(event, onward)
                self._take(event, onward)
            if onward:
                self._size += sum(map(len, onward))
                if self._size > limit:
                    raise TooLong(f"the result has more than {limit} bytes")
                self._progress(b"".join(onward))
        raise Broken("the stream ended without a result", may_have_run=True)

    def _take(self, event: Passed, onward: list[bytes]) -> None:
        """Handle any event except the last; events to forward go to ``onward``."""
        if event.name == "chunk":
            self._piece(event, onward)
        elif event.name == "task_id":
            self._task_id = self._task_id or event.data.decode(errors="replace").strip() or None
        elif event.name == "fault":
            self._fault = fault_of(event.data, self._upstream.name, self._session.hide)
        elif event.name == "error":
            raise self._failure(event.data.decode(errors="replace").strip())
        elif self._at == len(self._pieces):  # skip pieces that an earlier connection delivered
            onward.append(event.raw)

    def _piece(self, event: Passed, onward: list[bytes]) -> None:
        at, self._at = self._at, self._at + 1
        if at < len(self._pieces):
            if self._pieces[at] != event.data:
                raise self._upstream.deviates("gave another result when it was asked again")
            return
        onward.append(self._onward(event))
        self._pieces.append(event.data)

    def _onward(self, event: Passed) -> bytes:
        """The event in a form that released clients parse correctly (D1)."""
        if not has_space_at_edge(event.data):
            return event.raw
        if self._text is None:
            self._text = TextTracker()
        for piece in self._pieces[self._text.pieces :]:
            self._text.pass_over(piece)
        data = guarded(event.data, self._text)
        if data == event.data:
            return event.raw
        return b"event: " + event.name.encode() + b"\r\ndata: " + data + b"\r\n\r\n"

    def _end(self, event: Passed, onward: list[bytes]) -> Outcome:
        if self._at < len(self._pieces):
            raise self._upstream.deviates("gave a shorter result when it was asked again")
        self._piece(event, onward)
        wire = b"".join(onward) if len(onward) > 1 else onward[0]
        if self._size + len(wire) > self._upstream.options.max_result_bytes:
            raise TooLong(f"the result has more than {self._upstream.options.max_result_bytes} bytes")
        if self._kept:
            wire = b"".join([*self._kept, wire])
        try:
            if self._operation != "call":
                check_scores(self._pieces)
                return Outcome(wire)
            reward, finished = read_result(self._pieces, ours=self._upstream.ours)
        except NotANumber as exc:
            raise self._bad_reward(exc) from exc
        except NotAResult as exc:
            raise self._upstream.deviates(f"answered a call with {exc}") from exc
        return Outcome(wire, reward, finished)

    def _bad_reward(self, reward: NotANumber) -> Faulted:
        what = f"tool {from_json(self._body)['name']!r}" if self._operation == "call" else "score_group"
        text = f"{what} of {self._upstream.name} returned the reward {reward}"
        return Faulted("bad_reward", f"{text}: a reward is a finite number or None")

    def _failure(self, text: str) -> Faulted:
        fault, self._fault = self._fault, None
        if fault is None and text.lower() == "unknown task_id" and self._task_id is not None:
            fault = Faulted("unknown_task_id", text)
        if fault is None:
            scoring = self._operation == "score_group"
            words = text or "the environment reports a failure without words"
            return Faulted("score_error" if scoring else "tool_error", words)
        if fault.fault == "unknown_task_id":
            return self._lost(
                Broken("it forgot the call while the connection was broken", may_have_run=True),
                "its result is lost",
            )
        if fault.fault == "worker_lost":
            self._session.mark_lost(fault.fault, fault.message)
        return fault
