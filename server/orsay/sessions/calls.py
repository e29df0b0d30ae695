"""Tool calls and group scores: an idempotency store, bounded by number, bytes and age of its results.

A call outlives the connection that asked for it. It is found again by its task id, by its idempotency key,
or, when its connection is known to have broken, by the same body sent again. Its outcome is, in this order:

    computed     the runtime gave it
    durable      the journal committed it; without a journal at once
    published    readers may see it
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Protocol, TypeAlias

from pydantic_core import from_json, to_json

from ..errors import Faulted, KeyConflict, Overloaded, Refused
from ..journal.values import input_of
from ..runtimes.base import Handle, OnResult, Operation, Stop
from ..runtimes.outcome import Outcome
from .limits import CallLimits, SessionLimits
from .timers import Delay

__all__ = ["Call", "CallTotals", "Calls", "Reader", "Share", "Waiter", "task_ids"]

_IDS = 256  # drawn at once
_SPARE = 8  # share of a session's results that may be over the bound: the oldest are looked for at once
_LONGEST_KEY = 100  # characters that an error repeats
_SORTED_BYTES = 100_000

Reader: TypeAlias = Callable[[], bool]
"""A connection that reads a call; returns True once it has broken."""


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
        self.meaning: bytes | None = None  # of the body, once one that is spelled otherwise was seen
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
        """Note that the call takes long, and take what is here of its result: whole stream events."""
        if self.computed is not None:
            return
        self.slow = True
        if events:
            if self._chunks is None:
                self._chunks = bytearray()
            self._chunks += events
        self.wake()

    def has_chunks(self, sent: int) -> bool:
        """Whether more than ``sent`` bytes of the result are here while the call runs."""
        return self._chunks is not None and len(self._chunks) > sent

    def chunks(self, sent: int) -> bytes:
        """The bytes beyond the first ``sent`` of a result that runs, or ended in a fault."""
        return bytes(self._chunks[sent:]) if self._chunks is not None else b""

    def compute(self, outcome: Outcome, now: float) -> None:
        """Take the runtime's outcome; readers see it after ``publish``."""
        self.computed = outcome
        self.total_s = now - self.started_at
        self.stream_s = None if self.streamed_at is None else now - self.streamed_at
        self.stop = None
        if self._chunks is not None and outcome.wire:
            outcome.wire = bytes(self._chunks) + outcome.wire

    def publish(self, outcome: Outcome, now: float) -> None:
        """Let readers see the outcome: the computed one, or the fault that it could not be made durable."""
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
        """Set the results of those that wait."""
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
        """Done at the outcome, a chunk, or the report that the call is slow; after ``delay`` at most.

        Not for a call whose outcome is published.
        """
        future = delay.future()
        self.watch(future)
        return future

    def watch(self, waiter: Waiter) -> None:
        """As ``changed``, for a waiter of one's own, whose result is set within the publication."""
        waiters = self._waiters
        self._waiters = [waiter] if waiters is None else [*(w for w in waiters if not w.done()), waiter]

    @property
    def abandoned(self) -> bool:
        """Without readers: the last connection broke, whether or not its handler has noticed."""
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
        """Remove a connection, which got the outcome if ``complete``. Returns True where nobody reads the
        call any more, and nobody got its outcome.
        """
        if complete:
            self.delivered = True
        if len(self._readers) == 1:
            self._readers = ()
        else:
            self._readers = tuple(each for each in self._readers if each is not reader)
        return not (self._readers or self.delivered)


class Share:
    """Counters of one owner's calls; ``Calls`` changes them together with the server's ``CallTotals``."""

    __slots__ = ("in_flight", "stored_bytes")

    def __init__(self) -> None:
        self.in_flight = 0
        self.stored_bytes = 0


class CallTotals:
    """Counters of a server's calls, with a share for each owner, and its abandoned calls.

    A running call is a lease that its readers hold: when the last connection breaks it is abandoned, and it
    is stopped unless a client reclaims it in time (L5).
    """

    __slots__ = ("_abandoned", "_shares", "in_flight", "limits", "stored_bytes")

    def __init__(self, limits: CallLimits) -> None:
        self.limits = limits
        self.in_flight = 0
        self.stored_bytes = 0
        self._shares: dict[str, Share] = {}
        self._abandoned: set[Call] = set()

    def share(self, owner: str) -> Share:
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = Share()
        return share

    @property
    def owners_with_results(self) -> int:
        return sum(share.stored_bytes > 0 for share in self._shares.values())

    @property
    def abandoned(self) -> int:
        """Number of abandoned calls, neither reclaimed nor stopped so far."""
        return len(self._abandoned)

    def abandon(self, call: Call, now: float) -> None:
        """Start the grace of a call."""
        call.abandoned_at = now
        self._abandoned.add(call)

    def reclaim(self, call: Call) -> None:
        """End the grace of a call."""
        call.abandoned_at = None
        self._abandoned.discard(call)

    def forget(self, call: Call) -> None:
        """The call is not kept any more, abandoned or not."""
        self._abandoned.discard(call)

    def stop_abandoned(self, before: float) -> None:
        """Stop the calls abandoned ``before`` that time, except for detached ones."""
        for call in [c for c in self._abandoned if c.abandoned_at is not None and c.abandoned_at < before]:
            self._abandoned.discard(call)
            if call.stop is not None and not call.detached:
                call.stop()


def task_ids() -> Iterator[str]:
    """Endless task ids: 32 random hex digits each, drawn from the system many at a time."""

    def draw() -> list[str]:
        digits = os.urandom(16 * _IDS).hex()
        return [digits[at : at + 32] for at in range(0, len(digits), 32)]

    return chain.from_iterable(iter(draw, []))


class Calls:
    """The calls of one session, running and stored; they count for its owner and for the server.

    ``running`` counts those without a published outcome, ``abandoned`` those without a reader.
    """

    __slots__ = ("_by_id", "_by_key", "_bytes", "_totals", "abandoned", "running", "share")

    def __init__(self, totals: CallTotals, owner: str) -> None:
        self._totals = totals
        self.share = totals.share(owner)
        self._by_id: dict[str, Call] = {}
        self._by_key: dict[str, Call] | None = None
        self._bytes = 0
        self.abandoned = 0
        self.running = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, task_id: str, operation: Operation | None = None) -> Call | None:
        """The call of that task id, if it was made at this very endpoint."""
        call = self._by_id.get(task_id)
        return call if call is not None and operation in (None, call.operation) else None

    def find_key(self, key: str) -> Call | None:
        """The call that was made with that idempotency key."""
        return self._by_key.get(key) if self._by_key is not None else None

    def find_retry(self, operation: Operation, body: bytes, key: str | None) -> Call | None:
        """The call that a request without a task id repeats, if it does.

        By key; without one, the request repeats an abandoned call of the same body while its result is kept.
        Raises KeyConflict when the key is that of another request.
        """
        if key is not None:
            call = self._by_key.get(key) if self._by_key is not None else None
            if call is not None and not _is_repeated(call, operation, body):
                raise _key_conflict(call, key)
            return call
        if not self.running and not self.abandoned:
            return None
        for call in self._by_id.values():
            if call.operation == operation and call.body == body and call.abandoned:
                return call
        return None

    def abandon(self, call: Call, now: float) -> None:
        """Note that the last connection of the call broke before its result was out."""
        if self._by_id.get(call.task_id) is call:
            self.abandoned += call.abandoned_at is None
            self._totals.abandon(call, now)

    def reclaim(self, call: Call) -> None:
        """Note that a client came back for the call."""
        self.abandoned -= call.abandoned_at is not None
        call.delivered = False
        self._totals.reclaim(call)

    @property
    def stored(self) -> list[Call]:
        """Calls whose outcome is published."""
        return [call for call in self._by_id.values() if call.outcome is not None]

    @property
    def unpublished(self) -> list[Call]:
        """Calls that run, or whose outcome is not durable yet."""
        return [call for call in self._by_id.values() if call.outcome is None]

    def add(self, call: Call, limits: SessionLimits | None = None) -> None:
        """Add a call that is to run. Raises Overloaded when the server, or the owner, has as many running
        calls as ``limits`` allow.
        """
        share, totals = self.share, self._totals
        if limits is not None:
            if totals.in_flight >= limits.max_calls:
                raise Overloaded(f"server at maximum capacity: {limits.max_calls} calls are running")
            most = limits.max_calls_per_owner
            if most is not None and share.in_flight >= most:
                raise Overloaded(
                    f"this key is at maximum capacity: {most} calls are running;"
                    " ORSAY_MAX_CALLS_PER_KEY bounds it"
                )
        share.in_flight += 1
        totals.in_flight += 1
        self.running += 1
        self._by_id[call.task_id] = call
        if call.key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[call.key] = call

    def restore(self, call: Call, outcome: Outcome, now: float) -> None:
        """Add a call that an earlier server had published."""
        self.add(call)
        call.compute(outcome, now)
        self.publish(call, outcome, now)

    def publish(self, call: Call, outcome: Outcome, now: float) -> None:
        """Let readers see the outcome, and evict old results beyond the bounds."""
        share, totals = self.share, self._totals
        self.running -= 1
        share.in_flight -= 1
        totals.in_flight -= 1
        call.publish(outcome, now)
        size = call.size_bytes
        self._bytes += size
        share.stored_bytes += size
        totals.stored_bytes += size
        limits = totals.limits
        most = limits.results_per_session
        if len(self._by_id) - self.running > most + most // _SPARE or self._bytes > limits.bytes_per_session:
            self._evict_oldest(limits, call)

    def _evict_oldest(self, limits: CallLimits, keep: Call) -> None:
        """Evict until the bounds hold, or nothing but ``keep`` is stored."""
        for call in list(self._by_id.values()):
            if (
                len(self._by_id) - self.running <= limits.results_per_session
                and self._bytes <= limits.bytes_per_session
            ):
                return
            if call.outcome is not None and call is not keep:
                self.evict(call)

    def evict(self, call: Call) -> None:
        """Drop a call and its result; the same request would be a new call."""
        if self._by_id.pop(call.task_id, None) is None:
            return
        if call.key is not None and self._by_key is not None:
            self._by_key.pop(call.key, None)
        if call.outcome is not None:
            self._bytes -= call.size_bytes
            self.share.stored_bytes -= call.size_bytes
            self._totals.stored_bytes -= call.size_bytes
        if call.abandoned_at is not None:
            self.abandoned -= 1
            self._totals.forget(call)

    def expire(self, now: float) -> None:
        """Evict results older than the limit."""
        oldest = now - self._totals.limits.age_s
        for call in [each for each in self.stored if each.published_at < oldest]:
            self.evict(call)

    def clear(self) -> None:
        """Evict every result and cancel what runs: the session is over.

        A computed call stays: it is published when the journal has it.
        """
        for call in list(self._by_id.values()):
            if call.computed is None:
                cancelled = Outcome(fault=Faulted("cancelled", "the session ended"))
                call.compute(cancelled, call.started_at)
                self.publish(call, cancelled, call.started_at)
            if call.outcome is not None:
                self.evict(call)


def _is_repeated(call: Call, operation: Operation, body: bytes) -> bool:
    """The request is the one that made the call, however its JSON is spelled."""
    if call.operation != operation or call.body is None:
        return False
    if call.body == body:
        return True
    if call.meaning is None:
        call.meaning = _meaning(operation, call.body)
    return call.meaning == _meaning(operation, body)


def _meaning(operation: Operation, body: bytes) -> bytes:
    """Digest of what is asked, for bodies spelled differently, as by the journal and by a client.

    The order of names counts in large bodies only, which take long to sort.
    """
    try:
        found = from_json(body)
        asked = [found["name"], found["input"]] if operation == "call" else {**found, "task_id": None}
        text = to_json(asked)
        if len(text) <= _SORTED_BYTES:
            text = json.dumps(json.loads(text), sort_keys=True).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        text = _unusual(operation, body)
    return blake2b(text, digest_size=16).digest()


def _unusual(operation: Operation, body: bytes) -> bytes:
    """Of a body without input, or with half of a character that takes two."""
    try:
        found = json.loads(body)
        if operation == "call":
            found = [found["name"], json.loads(input_of("call", body))]
        else:
            found.pop("task_id", None)
        return json.dumps(found, sort_keys=True).encode()
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return body


def _key_conflict(call: Call, key: str) -> KeyConflict:
    what = f"a call of {call.name!r}" if call.operation == "call" else "a group score"
    return KeyConflict(
        f"Idempotency-Key {key[:_LONGEST_KEY]!r} belongs to another request of this session: {what}, task_id "
        f"{call.task_id}. Send that request as it was to read its result, or this one with a key of its own"
    )
