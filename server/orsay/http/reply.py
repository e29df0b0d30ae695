"""Answer to a request that is served without a task: from a callback, or in a task if it has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ..logs import get_logger
from .asgi import JSON
from .cycle import Cycle
from .pending import Defer
from .request import Request

__all__ = ["Reply"]

_log = get_logger(__name__)
Pairs = tuple[tuple[bytes, bytes], ...]


class Reply:
    """Answer to one request; exactly one of ``on_result``, ``send_json`` and ``fail`` is called, once."""

    __slots__ = ("_cycle", "_defer", "_request")

    def __init__(self, request: Request, cycle: Cycle, defer: Defer) -> None:
        self._request = request
        self._cycle = cycle
        self._defer = defer

    def after(self, future: asyncio.Future[Any] | None, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when the future is done; an exception of it becomes the answer."""
        if future is None or future.done():
            self._go_on(go_on)
        else:
            future.add_done_callback(lambda _: self._go_on(go_on))

    def _go_on(self, go_on: Callable[[], None]) -> None:
        try:
            go_on()
        except (Exception, asyncio.CancelledError) as exc:
            self.fail(exc)

    def on_result(self, answer: Any, error: BaseException | None) -> None:
        """Answer with JSON, or with the error: an ``OnResult``."""
        if error is not None:
            self.fail(error)
        else:
            self.send_json(answer)

    def send_json(self, body: bytes, headers: Pairs = ()) -> None:
        """Answer with JSON; in a task if the client reads slowly."""
        try:
            written = self._cycle.answer(200, (JSON, *headers), body)
        except Exception:  # must not disturb the code that runs this callback
            _log.exception("answer_failed", path=self._request.path)
            self._cycle.transport.abort()
            return
        if not written:
            self._defer(self._cycle, self._request, partial(_send, body, headers))

    def fail(self, error: BaseException) -> None:
        """Answer with the error."""
        self._defer(self._cycle, self._request, partial(_raise, error))


async def _send(body: bytes, headers: Pairs, request: Request) -> None:
    await request.send_json(body, headers=headers)


async def _raise(error: BaseException, _request: Request) -> None:
    raise error
