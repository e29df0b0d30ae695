"""Requests that wait for a running tool call: callbacks of the call in place of waiting tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from ..logs import get_logger
from ..sessions.call import Call, Reader
from ..sessions.session import Session
from ..sessions.timers import Delay
from .asgi import has_gone
from .cycle import Cycle
from .request import Endpoint, Request

__all__ = ["Defer", "PendingRequest", "PendingRequests"]

_log = get_logger(__name__)
_LOOKS = 4  # checks for late requests within the time limit of one

Defer: TypeAlias = Callable[[Cycle, Request, Endpoint], None]
"""Function that starts a task in which the endpoint answers the rest of a request."""


class Answering(Protocol):
    """Answers of a call: in one piece or, in a task, as a stream."""

    def whole(self, call: Call) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
        """Headers and body of the answer to a published call."""

    def rest(self, session: Session, call: Call, reader: Reader, *, keyed: bool) -> Endpoint:
        """Endpoint that continues the answer to this reader of the call, in a task."""


class PendingRequests:
    """Requests whose calls run, in order of arrival.

    A request whose call is neither published nor reported slow after ``seconds``, or up to a quarter more, is
    deferred to a task.
    """

    __slots__ = ("_looks", "_loop", "_seconds", "_until_look", "answering", "since")

    def __init__(self, answering: Answering, seconds: float) -> None:
        self.answering = answering
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._until_look = Delay(seconds / _LOOKS)
        self._looks = False
        self.since: dict[PendingRequest, float] = {}
        """Arrival times, on the clock of the loop."""

    def add(self, pending: PendingRequest, call: Call) -> None:
        """Answer the request once its call is published or reported slow."""
        if call.outcome is not None or call.slow:
            call.join(pending)
            pending.set_result()
            return
        call.join(pending, pending)
        self.since[pending] = self._loop.time()
        if not self._looks:
            self._look_later()

    def _look_later(self) -> None:
        self._looks = True
        self._until_look.future().add_done_callback(self._look)

    def _look(self, _: asyncio.Future[None]) -> None:
        self._looks = False
        oldest = self._loop.time() - self._seconds
        late = []
        for pending, since in self.since.items():
            if since > oldest:
                break
            late.append(pending)
        for pending in late:
            if not pending.done():
                pending.set_result()
        if self.since and not self._looks:
            self._look_later()


class PendingRequest:
    """One waiting request: a ``Waiter`` of its call, and a ``Reader`` that returns True after a disconnect.

    ``keyed``: the client can request the call again by its idempotency key.
    """

    __slots__ = ("_call", "_cycle", "_defer", "_keyed", "_over", "_request", "_requests", "_session")

    def __init__(
        self,
        requests: PendingRequests,
        cycle: Cycle,
        request: Request,
        session: Session,
        call: Call,
        defer: Defer,
        *,
        keyed: bool,
    ) -> None:
        self._requests = requests
        self._cycle = cycle
        self._request = request
        self._session = session
        self._call = call
        self._defer = defer
        self._keyed = keyed
        self._over = False

    def __call__(self) -> bool:
        cycle = self._cycle
        return cycle.disconnected or cycle.transport.is_closing()  # uvicorn sets its flag a turn later

    def done(self) -> bool:
        return self._over

    def set_result(self, result: None = None, /) -> None:
        """Answer a published call; defer one that is slow or late to a task."""
        self._over = True
        requests, call, cycle, session = self._requests, self._call, self._cycle, self._session
        requests.since.pop(self, None)
        answering = requests.answering
        if call.outcome is None or call.refused is not None or cycle.flow.write_paused:
            gone = partial(has_gone, self._request.receive)
            call.join(gone)
            call.leave(self, complete=False)
            self._defer(cycle, self._request, answering.rest(session, call, gone, keyed=self._keyed))
            return
        complete = self._keyed or not (cycle.disconnected or cycle.transport.is_closing())
        try:
            cycle.answer(200, *answering.whole(call))
        except Exception:  # must not disturb the publication of the call, which runs this
            _log.exception("answer_failed", task_id=call.task_id)
            cycle.transport.abort()
            complete = False
        if call.leave(self, complete=complete):
            session.abandon(call)
