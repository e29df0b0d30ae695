"""The endpoints of a session, as plain ASGI.

The call of a quick tool is answered in one write; a longer one becomes an open stream. The duration of the
tool decides, as its runtime reports it, without the time in queues of the server: otherwise overload would
make each call more expensive. After one second the stream is opened in any case. The environment's name in
the path is not compared with the session's: the session id determines the environment.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

from orsay_protocol.headers import ORSAY, STATE, TRACE
from orsay_protocol.redact import redactor
from orsay_protocol.requests import CallTool, CancelCall, CreateSession, ScoreGroup
from orsay_protocol.sse import PING, encode_event
from pydantic_core import to_json
from sse_starlette import EventSourceResponse

from ..errors import BadRequest, Faulted, Unsupported
from ..runtimes.base import Operation
from ..runtimes.outcome import Outcome
from ..sessions.call import Call, Reader
from ..sessions.registry import Sessions
from ..sessions.session import Session
from ..sessions.timers import Delay, joined
from .asgi import has_gone
from .choice import choose
from .cycle import Cycle
from .opening import open_request, run_of, secrets_of, traceparent_of
from .pending import Defer, PendingRequest, PendingRequests
from .reply import Reply
from .request import Endpoint, Request

__all__ = ["AtOnce", "EpisodeEndpoints"]

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_TASK_ID = b"event: task_id\r\ndata: %b\r\n\r\n"
_OK = b'{"status":"ok"}'
_LONGEST_WAIT_S = 1.0  # for a runtime that does not report, and once more for the journal
_TRACE = TRACE.lower().encode()
_MARK = ((ORSAY.lower().encode(), b"1"),)
_READY = (*_MARK, (STATE.lower().encode(), b"ready"))
_STARTING = (*_MARK, (STATE.lower().encode(), b"starting"))
_CALL = CallTool.__pydantic_validator__

AtOnce: TypeAlias = Callable[[Request, Cycle, Defer], bool]


class EpisodeEndpoints:
    """One method for each endpoint."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        max_body_bytes: int,
        stream_after_s: float,
        stream_ping_s: float,
        index_only: bool,
    ) -> None:
        self._sessions = sessions
        self._faults = sessions.faults
        self._max_body = max_body_bytes
        longest_wait_s = stream_after_s + _LONGEST_WAIT_S if stream_after_s else 0.0
        self._longest_wait = Delay(longest_wait_s)
        self._pending = PendingRequests(self, longest_wait_s)
        self._soon = Delay(min(1.0, stream_ping_s))
        self._stream_ping_s = stream_ping_s
        self._index_only = index_only
        self.table: dict[tuple[str, str], Endpoint] = {
            ("POST", "call"): self.call,
            ("POST", "ping"): self.ping,
            ("POST", "cancel"): self.cancel,
            ("GET", "prompt"): self.prompt,
            ("POST", "create"): self.create,
            ("POST", "delete"): self.delete,
            ("POST", "create_session"): self.create_session,
            ("POST", "delete_session"): self.delete_session,
            ("GET", "messages"): self.messages,
            ("GET", "task_tools"): self.task_tools,
            ("POST", "score_group"): self.score_group,
        }
        self.at_once: dict[tuple[str, str], AtOnce] = {
            ("POST", "call"): self.call_at_once,
            ("GET", "prompt"): self.prompt_at_once,
            ("POST", "create"): self.create_at_once,
            ("POST", "delete"): self.delete_at_once,
        }
        """Handlers of completely received requests; each returns False if the request needs a task."""

    # beginning and end

    async def create_session(self, request: Request) -> None:
        sid = str(uuid.uuid4())
        if b"text/event-stream" in request.headers.get(b"accept", b""):
            body = encode_event("task_id", sid) + b"event: end\r\ndata: \r\n\r\n"
            await request.send_once(200, body, _STREAM_HEADERS + _MARK)
        else:
            await request.send_json(to_json({"sid": sid}), headers=_MARK)

    async def delete_session(self, request: Request) -> None:
        await request.send_json(to_json({"sid": request.session_id()}))

    async def create(self, request: Request) -> None:
        sid = request.session_id()
        session = self._begin_create(sid, request, await request.body(self._max_body))
        if session.opening is not None:
            await joined(session.opening)
        session.touch()
        await request.send_json(to_json({"sid": sid}), headers=_state_of(session))

    def create_at_once(self, request: Request, cycle: Cycle, defer: Defer) -> bool:
        """``create`` without a task, for a completely received request; else False."""
        if len(cycle.body) > self._max_body:
            return False
        sid = request.session_id()
        body = cycle.take_body()
        if body is None:
            return False
        session = self._begin_create(sid, request, body)
        opening = session.opening
        reply = Reply(request, cycle, defer)

        def created() -> None:
            if opening is not None:
                opening.result()
            session.touch()
            reply.send_json(to_json({"sid": sid}), _state_of(session))

        reply.after(opening, created)
        return True

    def _begin_create(self, sid: str, request: Request, data: bytes) -> Session:
        body = CreateSession.model_validate_json(data or b"null")
        secrets = secrets_of(request)
        if secrets is None:
            secrets = {name: value for name, value in (body.secrets or {}).items() if value is not None}
        hide = redactor(secrets.values())  # a reference keeps it in the cache of redactors
        info = choose(self._sessions.runtime, body.env_name, request.header(b"x-deployment"))
        wanted = open_request(
            info,
            body,
            secrets,
            index_only=self._index_only,
            run=run_of(request, hide),
            traceparent=traceparent_of(request),
        )
        client = request.header(b"user-agent") or ""
        return self._sessions.begin_create(sid, request.owner, info, wanted, client)

    async def delete(self, request: Request) -> None:
        sid = request.session_id()
        fault = await self._sessions.delete(sid, request.owner)
        await request.send_json(self._deleted(sid, fault))

    def delete_at_once(self, request: Request, cycle: Cycle, defer: Defer) -> bool:
        """``delete`` without a task, for a live session; else False."""
        sid = request.session_id()
        session = self._sessions.live.get((request.owner, sid))
        closing = None if session is None else self._sessions.begin_close(session, "deleted")
        if session is None or closing is None:
            return False
        reply = Reply(request, cycle, defer)

        def torn_down() -> None:
            answer = self._deleted(sid, closing.result())
            reply.after(session.end_durable, lambda: reply.send_json(answer))

        reply.after(closing, torn_down)
        return True

    def _deleted(self, sid: str, fault: Faulted | None) -> bytes:
        answer: dict[str, Any] = {"sid": sid}
        if fault is not None:
            answer["fault"] = self._faults.event(fault).model_dump(by_alias=True)
        return to_json(answer)

    async def ping(self, request: Request) -> None:
        self._sessions.get(request.session_id(), request.owner)
        await request.send_json(_OK)

    # prompt, messages, tools

    async def prompt(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        await request.send_json(await session.ask(await session.ready(), "prompt"))

    def prompt_at_once(self, request: Request, cycle: Cycle, defer: Defer) -> bool:
        """``prompt`` without a task, for a session that is ready; else False."""
        session = self._sessions.get(request.session_id(), request.owner)
        handle = session.ready_handle
        if handle is None:
            return False
        session.start_ask(handle, "prompt", Reply(request, cycle, defer).on_result)
        return True

    async def messages(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        await request.send_json(await session.ask(await session.ready(), "messages"))

    async def task_tools(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        await request.send_json(await session.ask(await session.ready_to_list(), "task_tools"))

    # calls

    async def call(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        body = await request.body(self._max_body)
        wanted = _CALL.validate_json(body)
        await self._answer(request, session, "call", wanted.name, body, wanted.task_id)

    async def score_group(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        body = await request.body(self._max_body)
        wanted = ScoreGroup.model_validate_json(body)
        await session.ready()
        if not session.info.supports_score_group:
            raise Unsupported(f"environment {session.info.name!r} does not score groups")
        await self._answer(request, session, "score_group", "score_group", body, wanted.task_id)

    async def cancel(self, request: Request) -> None:
        session = self._sessions.get(request.session_id(), request.owner)
        body = await request.body(self._max_body)
        task_id = CancelCall.model_validate_json(body).task_id if body else None
        key = request.header(b"idempotency-key")
        if task_id is None and key is None:
            raise BadRequest("say which call to cancel: its task_id in the body, or its Idempotency-Key")
        await request.send_json(to_json({"cancelled": session.cancel(task_id, key)}))

    def call_at_once(self, request: Request, cycle: Cycle, defer: Defer) -> bool:
        """``call`` without a task, for a completely received request to a ready session; else False."""
        session = self._sessions.get(request.session_id(), request.owner)
        handle = session.ready_handle
        if handle is None or len(cycle.body) > self._max_body:
            return False
        wanted = _CALL.validate_json(bytes(cycle.body))  # a bytearray takes a quarter longer
        if wanted.task_id is not None:
            return False
        body = cycle.take_body()
        if body is None:
            return False
        key = request.header(b"idempotency-key") if b"idempotency-key" in request.headers else None
        call = session.start_call(handle, "call", wanted.name, body, key)
        pending = PendingRequest(self._pending, cycle, request, session, call, defer, keyed=key is not None)
        self._pending.add(pending, call)
        return True

    async def _answer(
        self,
        request: Request,
        session: Session,
        operation: Operation,
        name: str,
        body: bytes,
        task_id: str | None,
    ) -> None:
        """Start the call, or find the one that the request repeats, and answer with its stream of events."""
        handle = await session.ready()
        key = None
        if task_id is not None:
            try:
                call = session.attach(task_id, operation)
            except Faulted as fault:
                await request.send_once(200, self._failure(fault), _STREAM_HEADERS)
                return
        else:
            key = request.header(b"idempotency-key")
            call = session.start_call(handle, operation, name, body, key)
        gone = partial(has_gone, request.receive)
        call.join(gone)
        await self._read(request, session, call, gone, keyed=key is not None, waits=True)

    async def _read(
        self, request: Request, session: Session, call: Call, gone: Reader, *, keyed: bool, waits: bool
    ) -> None:
        """Answer with the outcome or a stream of events. ``waits``: give a quick tool time to end first."""
        complete = False
        try:
            if waits and call.outcome is None and not call.slow:
                await call.changed(self._longest_wait)
            if call.outcome is None and call.computed is not None:  # not durable yet
                await call.changed(self._longest_wait)
            if call.outcome is not None:
                complete = keyed or not gone()
                if call.refused is not None:
                    raise call.refused
                headers, events = self.whole(call)
                await request.send_once(200, events, headers)
            else:
                complete = await self._stream(session, call, request)
        finally:
            session.leave(call, gone, complete=complete)

    def whole(self, call: Call) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
        """Headers and body of the answer to a published call."""
        outcome = call.outcome
        result = outcome.wire if outcome is not None and outcome.wire else self._result(call)
        return _STREAM_HEADERS, _TASK_ID % call.task_id.encode() + result

    def rest(self, session: Session, call: Call, reader: Reader, *, keyed: bool) -> Endpoint:
        """Endpoint that continues the answer to this reader of the call, in a task."""

        async def go_on(request: Request) -> None:
            await self._read(request, session, call, reader, keyed=keyed, waits=False)

        return go_on

    async def _stream(self, session: Session, call: Call, request: Request) -> bool:
        """Stream until the outcome; False if the client disconnected before.

        The first second is streamed here, since on a busy server many streams end within it; after that
        sse-starlette streams, which sends comments and detects a disconnect.
        """
        send = request.send
        await session.begin_stream(call)
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await send(
            {"type": "http.response.body", "body": _TASK_ID % call.task_id.encode(), "more_body": True}
        )
        sent = 0
        while call.outcome is None:
            if not call.has_chunks(sent):
                await call.changed(self._soon)
            part = b"" if call.outcome is not None else call.chunks(sent)
            if not part:
                break
            sent += len(part)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if call.outcome is not None:
            gone = request.has_gone()
            await send({"type": "http.response.body", "body": self._result(call, sent)})
            return not gone
        complete = False

        async def events() -> AsyncIterator[bytes]:
            nonlocal complete, sent
            yield PING  # the next one follows after a full interval
            while call.outcome is None:
                if call.has_chunks(sent):
                    part = call.chunks(sent)
                    sent += len(part)
                    yield part
                else:
                    await call.changed(self._soon)
            yield self._result(call, sent)
            complete = True

        async def send_on(message: MutableMapping[str, Any]) -> None:
            if message["type"] != "http.response.start":  # it was sent above
                await send(message)

        ping: Any = self._stream_ping_s  # typed as int, slept as seconds
        await _OpenStream(events(), ping=ping)(request.scope, request.receive, send_on)
        return complete

    def _result(self, call: Call, sent: int = 0) -> bytes:
        """The last events of the stream, without the first ``sent`` bytes of the result."""
        assert call.outcome is not None
        wire = call.outcome.wire
        if wire:
            return wire[sent:] if sent else wire
        return call.chunks(sent) + self._failure_of(call.outcome)

    def _failure_of(self, outcome: Outcome) -> bytes:
        return self._failure(outcome.fault or Faulted("internal", "an outcome without content"))

    def _failure(self, fault: Faulted) -> bytes:
        event = self._faults.event(fault)
        detail = encode_event("fault", event.model_dump_json(by_alias=True))
        return detail + encode_event("error", event.message)


class _OpenStream(EventSourceResponse):
    """Event stream that ends with its call.

    The base class also ends it with the process, by an event that all servers of a process share and that
    belongs to the loop of the first one. Here the server controls the order of its shutdown.
    """

    @staticmethod
    async def _listen_for_exit_signal() -> None:
        await asyncio.get_running_loop().create_future()  # cancelled with the other tasks of the stream


def _state_of(session: Session) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of the answer to ``create``."""
    state = _READY if session.state == "ready" else _STARTING
    return (*state, (_TRACE, (session.trace or "").encode()))
