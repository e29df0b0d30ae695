"""One tool call or group score, from its request to its readers.

A call outlives the connection that asked for it. Its outcome is, in this order:

    computed     the runtime has returned it
    durable      the journal has committed it; without a journal at once
    published    readers may see it
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol, TypeAlias

from ..errors import Refused
from ..runtimes.base import Handle, OnResult, Operation, Stop
from ..runtimes.outcome import Outcome
from .timers import Delay

__all__ = ["Call", "Reader", "Waiter", "task_ids"]

_IDS = 256  # drawn at once

Reader: TypeAlias = Callable[[], bool]
"""A connection that reads a call; returns True once it has broken."""


def task_ids() -> Iterator[str]:
    """Endless task ids: 32 random hex digits each, drawn from the system many at a time."""

    def draw() -> list[str]:
        digits = os.urandom(16 * _IDS).hex()
        return [digits[at : at + 32] for at in range(0, len(digits), 32)]

    return chain.from_iterable(iter(draw, []))


class Waiter(Protocol):
    """A future, or an object that waits like one."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...


class Call:
    """One call. ``computed`` is the runtime's outcome, ``outcome`` the published one; both are set once.

    ``after`` is the logical clock of the session when the call began (``Record.clock``). ``slow`` is True
    once the runtime reports that it takes long. ``row_id`` is the call's row in the journal, 0 before it has
    one; ``start_durable`` is done when that is committed. ``delivered`` is True once a connection got the
    outcome, until a client asks for the call again; a delivered call is not abandoned.

    A computed call has ``total_s``, the time since the request, and ``stream_s``, the part of it that was an
    open stream, None for an answer in one piece. A published one has ``size_bytes``: the request, and the
    result or what came before a fault.
    """

    __slots__ = (
        "_chunks",
        "_readers",
        "_waiters",
        "abandoned_at",
        "after",
        "body",
        "computed",
        "delivered",
        "detached",
        "key",
        "meaning",
        "name",
        "operation",
        "outcome",
        "published_at",
        "refused",
        "row_id",
        "size_bytes",
        "slow",
        "start_durable",
        "started_at",
        "stop",
        "stream_s",
        "streamed_at",
        "task_id",
        "total_s",
    )

    def __init__(
        self,
        task_id: str,
        operation: Operation,
        name: str,
        body: bytes,
        key: str | None,
        now: float,
        *,
        detached: bool,
        row_id: int = 0,
    ) -> None:
        self.task_id = task_id
        self.operation = operation
        self.name = name
        self.body: bytes | None = body
        self.key = key
        self.meaning: bytes | None = None  # digest of the body, once another spelling was compared
        self.detached = detached
        self.started_at = now
        self.streamed_at: float | None = None
        self.published_at = 0.0
        self.abandoned_at: float | None = None
        self.computed: Outcome | None = None
        self.outcome: Outcome | None = None
        self.refused: Refused | None = None
        self.slow = False
        self.delivered = False
        self.after = 0
        self.row_id = row_id
        self.start_durable: asyncio.Future[bool] | None = None
        self.stop: Stop | None = None
        self._chunks: bytearray | None = None
        self._readers: tuple[Reader, ...] = ()
        self._waiters: list[Waiter] | None = None

    # from the runtime to the readers

    def run(self, handle: Handle, on_result: OnResult, *, limit_s: float, after: int) -> None:
        """Start the call in its runtime."""
        self.after = after
        body, on_chunk = self.body or b"", self.on_chunk
        stop = handle.start(self.operation, body, on_result, limit_s=limit_s, progress=on_chunk)
        if self.computed is None:
            self.stop = stop

    def stream(self, now: float) -> float:
        """Note that the answer is an open stream from now on; returns the age of the call in seconds."""
        self.streamed_at = now
        return now - self.started_at

    def start_written(self, row_id: int, durable: asyncio.Future[bool]) -> None:
        """Note the row of the call's start; ``durable`` is done when it is committed."""
        self.row_id, self.start_durable = row_id, durable

    def on_chunk(self, events: bytes) -> None:
        """Mark the call as slow, and store what has arrived of its result: complete stream events."""
        if self.computed is not None:
            return
        self.slow = True
        if events:
            if self._chunks is None:
                self._chunks = bytearray()
            self._chunks += events
        self.wake()

    def has_chunks(self, sent: int) -> bool:
        """True if more than ``sent`` bytes of the result have arrived while the call runs."""
        return self._chunks is not None and len(self._chunks) > sent

    def chunks(self, sent: int) -> bytes:
        """The bytes after the first ``sent`` of a partial result: the call runs, or ended in a fault."""
        return bytes(self._chunks[sent:]) if self._chunks is not None else b""

    def refuse(self, reason: Refused) -> None:
        """Note that the runtime refused the call, which did not run."""
        self.refused = reason

    def compute(self, outcome: Outcome, now: float) -> None:
        """Store the runtime's outcome; readers see it after ``publish``."""
        self.computed = outcome
        self.total_s = now - self.started_at
        self.stream_s = None if self.streamed_at is None else now - self.streamed_at
        self.stop = None
        if self._chunks is not None and outcome.wire:
            outcome.wire = bytes(self._chunks) + outcome.wire

    def publish(self, outcome: Outcome, now: float) -> None:
        """Show readers the outcome: the computed one, or a fault because it could not be made durable."""
        size = len(self.body or b"") + len(outcome.wire)
        if outcome.wire:
            self._chunks = None  # the wire begins with them
        elif self._chunks is not None:
            size += len(self._chunks)
        self.size_bytes = size
        self.computed = self.outcome = outcome
        self.published_at = now
        if self._waiters is not None:
            self.wake()

    def wake(self) -> None:
        """Set the results of all waiters."""
        waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # readers

    async def wait(self, delay: Delay) -> bool:
        """Wait for the published outcome or a chunk, for ``delay`` at most; True with the outcome."""
        if self.outcome is None:
            await self.changed(delay)
        return self.outcome is not None

    def changed(self, delay: Delay) -> asyncio.Future[None]:
        """Future of the outcome, a chunk, or the report that the call is slow; done after ``delay`` at most.

        Not for a call whose outcome is published.
        """
        future = delay.future()
        self.watch(future)
        return future

    def watch(self, waiter: Waiter) -> None:
        """As ``changed``, for a waiter of the caller, whose result is set within ``publish``."""
        waiters = self._waiters
        self._waiters = [waiter] if waiters is None else [*(w for w in waiters if not w.done()), waiter]

    @property
    def abandoned(self) -> bool:
        """True without readers: the last connection broke, even if its handler has not noticed."""
        if self.abandoned_at is not None:
            return True
        return not self.delivered and bool(self._readers) and all(is_broken() for is_broken in self._readers)

    def join(self, reader: Reader, waiter: Waiter | None = None) -> None:
        """Add a connection that reads this call, and its ``waiter`` as by ``watch``."""
        self._readers = (*self._readers, reader)
        if waiter is not None:
            if self._waiters is None:
                self._waiters = [waiter]
            else:
                self.watch(waiter)

    def leave(self, reader: Reader, *, complete: bool) -> bool:
        """Remove a connection, which got the outcome if ``complete``.

        Returns True if it was the last, and none has got the outcome.
        """
        if complete:
            self.delivered = True
        if len(self._readers) == 1:
            self._readers = ()
        else:
            self._readers = tuple(each for each in self._readers if each is not reader)
        return not (self._readers or self.delivered)
