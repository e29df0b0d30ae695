"""A call over server-sent events, resumed over broken connections until the result is complete.

Invariant: a tool runs at most once. Before the stream has sent the ``task_id``, a request is repeated only if
nothing can have run, or if the server honours idempotency keys; after that the request attaches to the
running call by its ``task_id``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orsay_protocol import Fault as WireFault
from orsay_protocol.headers import IDEMPOTENCY_KEY
from orsay_protocol.sse import Decoder, Event, StreamTooLong
from orsay_protocol.texts import well_formed
from pydantic import ValidationError

from . import errors
from .answers import detail_of, error_for, refuses_input
from .redact import Redact
from .retry import Attempts, Retry
from .transport import Answer, Stream, Transport

__all__ = ["EVENT_STREAM", "ResultStream", "StreamRules"]

EVENT_STREAM = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
"""Headers of a request with a stream as answer, uncompressed, since a compressing proxy delays pieces."""

_log = logging.getLogger("orsay_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Rules for all streams of a session.

    ``repeatable``: a request that may have reached the server can be sent again. ``answer_s`` bounds the
    wait for the first byte, ``silence_s`` for each next one.
    """

    retry: Retry
    redact: Redact
    repeatable: bool
    answer_s: float
    silence_s: float
    max_result_bytes: int
    bare_error_class: str = "tool_error"


class ResultStream:
    """One call: `result()` is awaited once."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        rules: StreamRules,
    ) -> None:
        self._transport = transport
        self._path = path
        self._body = dict(body)
        self._headers = {**headers, **EVENT_STREAM, IDEMPOTENCY_KEY: uuid.uuid4().hex}
        self._rules = rules
        self._attempts = Attempts(rules.retry)
        self._task_id: str | None = None
        self._most_bytes = 0
        self._received_at = 0.0
        self._result: str | None = None

    async def result(self) -> Any:
        """The result as parsed JSON.

        Raises ToolRefused if the body cannot be sent or the server refuses it as input, so that nothing ran;
        also Fault and its subclasses, RequestError, ProtocolError.
        """
        while not self._has_result():
            started = asyncio.get_running_loop().time()
            try:
                refusal = await self._once()
            except errors.BadRequest as unsent:
                raise _refused(unsent.message) from None
            except errors.ConnectionLost as lost:
                if self._has_result():  # only the tail of the stream was lost
                    break
                delay = self._after_break(lost, started)
                if delay is None:
                    raise self._given_up(lost) from lost
            else:
                if refusal is None:
                    break
                delay = self._after_refusal(refusal)
            _log.debug("%s: trying again in %.2f s", self._path, delay)
            await asyncio.sleep(delay)
        return self._parsed()

    def _has_result(self) -> bool:
        return self._result is not None

    async def _once(self) -> Answer | None:
        """One connection: the refusal if the server sent no stream, None once the result is complete."""
        body = self._body if self._task_id is None else {**self._body, "task_id": self._task_id}
        rules = self._rules
        async with self._transport.stream(
            "POST",
            self._path,
            body=body,
            headers=self._headers,
            answer_s=rules.answer_s,
            silence_s=rules.silence_s,
        ) as stream:
            if stream.status != 200:
                return await stream.answer()
            if not stream.is_event_stream:
                kind = stream.headers.get("content-type", "nothing")
                raise errors.ProtocolError(f"POST {self._path}: expected an event stream, got {kind}")
            await self._read(stream)
            return None

    async def _read(self, stream: Stream) -> None:
        decoder = Decoder(self._rules.max_result_bytes)
        reading = _Reading(self._rules.max_result_bytes)
        try:
            async for data in stream.chunks():
                self._received_at = asyncio.get_running_loop().time()
                if self._has_result():
                    continue
                for event in decoder.feed(data):
                    self._take(event, reading)
                    if self._has_result():
                        stream.last_bytes_only()
                        break
        except StreamTooLong as exc:
            raise errors.ResultTooLarge(f"POST {self._path}: {exc}") from exc
        finally:
            # Each connection replays the result from its start: only new bytes are progress.
            if reading.size > self._most_bytes:
                self._most_bytes = reading.size
                self._attempts.progress()
        if not self._has_result():
            raise errors.ConnectionLost(
                f"POST {self._path}: the stream ended without a result", may_have_run=True
            )

    def _take(self, event: Event, reading: _Reading) -> None:
        if event.event == "task_id":
            if self._task_id is None and event.data.strip():
                self._task_id = event.data.strip()
                self._attempts.progress()
        elif event.event == "chunk":
            reading.add(event.data)
        elif event.event == "end":
            reading.add(event.data)
            self._result = "".join(reading.pieces)
        elif event.event == "fault":
            reading.fault = _wire_fault(event.data)
        elif event.event == "error":
            raise self._fault(event.data, reading.fault)

    def _fault(self, text: str, wire: WireFault | None) -> errors.Fault:
        message = self._rules.redact(text or "the server reports a failure without words")
        if wire is not None:
            return errors.fault(wire.fault_class, message, id=wire.id, retryable=wire.retryable)
        if self._task_id is not None and text.strip().lower() == "unknown task_id":
            return errors.fault(
                "unknown_task_id", "the server forgot the call while the connection was broken"
            )
        return errors.fault(self._rules.bare_error_class, message)

    def _after_break(self, lost: errors.ConnectionLost, started: float) -> float | None:
        if lost.may_have_run and self._task_id is None and not self._rules.repeatable:
            return None
        # While the tool runs only comments arrive: a stream that lived for a while counts as progress.
        if self._most_bytes == 0 and self._received_at - started >= self._rules.retry.progress_s:
            self._attempts.progress()
        return self._attempts.after_break()

    def _after_refusal(self, answer: Answer) -> float:
        careful = self._task_id is None and not self._rules.repeatable
        delay = self._attempts.after_answer(answer.status, answer.headers, only_unexecuted=careful)
        if delay is not None:
            return delay
        if self._task_id is None and refuses_input(answer):
            raise _refused(self._rules.redact(detail_of(answer) or f"the server answered {answer.status}"))
        error = error_for(answer, f"POST {self._path}", in_session=True, redact=self._rules.redact)
        if careful and answer.status in (502, 503, 504) and not isinstance(error, errors.TimeLimit):
            raise errors.ConnectionLost(
                f"{error.message} (status {answer.status}; the call may have run)", may_have_run=True
            )
        raise error

    def _given_up(self, lost: errors.ConnectionLost) -> errors.ConnectionLost:
        tries = self._attempts.failures
        if not lost.may_have_run and self._task_id is None:
            hint = f"gave up after {tries} tries; nothing was sent" if tries > 1 else "nothing was sent"
        elif self._task_id is None and not self._rules.repeatable:
            hint = "the call may have run, and this server has no record of it: it was not sent again"
        else:
            hint = f"the call may have run; gave up after {tries} broken connections in a row"
        return errors.ConnectionLost(
            self._rules.redact(f"{lost.message} ({hint})"),
            may_have_run=lost.may_have_run or self._task_id is not None,
        )

    def _parsed(self) -> Any:
        try:
            return json.loads(self._result or "")
        except (ValueError, RecursionError):
            raise errors.ProtocolError(f"POST {self._path}: the result is not JSON") from None


def _refused(why: str) -> errors.ToolRefused:
    return errors.ToolRefused(well_formed(f"the input was not accepted: {why}"), reason="input_validation")


class _Reading:
    """Part of the result that one connection has delivered."""

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[str] = []
        self.size = 0
        self.fault: WireFault | None = None
        self._max_bytes = max_bytes

    def add(self, piece: str) -> None:
        self.size += len(piece)
        if self.size > self._max_bytes:
            raise StreamTooLong(f"the result is larger than the {self._max_bytes} bytes this client accepts")
        self.pieces.append(piece)


def _wire_fault(data: str) -> WireFault | None:
    try:
        return WireFault.model_validate_json(data)
    except ValidationError:
        return None
