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
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol, TypeAlias

from pydantic_core import from_json, to_json

from ..errors import Faulted, KeyConflict, Overloaded, Refused
from ..journal.values import input_of
from ..runtimes.base import Operation, Stop
from ..runtimes.outcome import Outcome
from .limits import CallLimits, SessionLimits
from .timers import Delay

__all__ = ["Call", "CallTotals", "Calls", "Reader", "Share", "TaskIds", "Waiter"]

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

    A computed call has ``total_s``, the time since the request, and ``stream_s``, the part of it that was an
    open stream, None for an answer in one piece. ``slow``: the runtime reported that it takes long. ``after``
    is the logical clock of the session when the call began (``Record.clock``). ``row_id`` is the row of the
    call in the journal, 0 before it has one, and ``start_durable`` is done when that is committed.
    ``delivered``: a connection got the outcome since a client last asked for the call, which is not abandoned
    then.
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
        self.row_id = 0
        self.start_durable: asyncio.Future[bool] | None = None
        self.stop: Stop | None = None
        self._chunks: bytearray | None = None
        self._readers: tuple[Reader, ...] = ()
        self._waiters: list[Waiter] | None = None

    # from the runtime to the readers

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
        if outcome.wire:
            self._chunks = None  # the wire begins with them
        self.computed = self.outcome = outcome
        self.published_at = now

    def wake(self) -> None:
        """Set the results of those that wait."""
        waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def size_bytes(self) -> int:
        """Bytes that a published call holds: the request, and the result or what came before a fault."""
        wire = b"" if self.outcome is None else self.outcome.wire
        return len(self.body or b"") + len(wire) + len(self._chunks or b"")

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

    def join(self, reader: Reader) -> None:
        """Add a connection that reads this call."""
        self._readers = (*self._readers, reader)

    def leave(self, reader: Reader) -> bool:
        """Remove a connection; True when it was the last."""
        if len(self._readers) == 1:
            self._readers = ()
            return True
        self._readers = tuple(each for each in self._readers if each is not reader)
        return not self._readers


class Share:
    """Counters of one owner, which also count for the whole server."""

    __slots__ = ("_totals", "in_flight", "stored_bytes")

    def __init__(self, totals: CallTotals) -> None:
        self._totals = totals
        self.in_flight = 0
        self.stored_bytes = 0

    def admit_call(self, limits: SessionLimits) -> None:
        """Raises Overloaded when the server, or the owner, has as many running calls as it may."""
        if self._totals.in_flight >= limits.max_calls:
            raise Overloaded(f"server at maximum capacity: {limits.max_calls} calls are running")
        most = limits.max_calls_per_owner
        if most is not None and self.in_flight >= most:
            raise Overloaded(
                f"this key is at maximum capacity: {most} calls are running;"
                " ORSAY_MAX_CALLS_PER_KEY bounds it"
            )

    def call_began(self) -> None:
        self.in_flight += 1
        self._totals.in_flight += 1

    def call_published(self, size_bytes: int) -> None:
        self.in_flight -= 1
        self._totals.in_flight -= 1
        self.stored_bytes += size_bytes
        self._totals.stored_bytes += size_bytes

    def result_evicted(self, size_bytes: int) -> None:
        self.stored_bytes -= size_bytes
        self._totals.stored_bytes -= size_bytes


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
            share = self._shares[owner] = Share(self)
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


class TaskIds:
    """Source of task ids: 32 random hex digits, drawn from the system many at a time."""

    __slots__ = ("_at", "_block")

    def __init__(self) -> None:
        self._block = ""
        self._at = 0

    def next(self) -> str:
        if self._at == len(self._block):
            self._block = os.urandom(16 * 256).hex()
            self._at = 0
        self._at += 32
        return self._block[self._at - 32 : self._at]


class Calls:
    """The calls of one session, running and stored; they count for its owner."""

    __slots__ = ("_abandoned", "_by_id", "_by_key", "_bytes", "_totals", "running", "share")

    def __init__(self, totals: CallTotals, owner: str) -> None:
        self._totals = totals
        self.share = totals.share(owner)
        self._by_id: dict[str, Call] = {}
        self._by_key: dict[str, Call] | None = None
        self._bytes = 0
        self._abandoned = 0
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
        if not self.running and not self._abandoned:
            return None
        for call in self._by_id.values():
            if call.operation == operation and call.body == body and call.abandoned:
                return call
        return None

    def abandon(self, call: Call, now: float) -> None:
        """Note that the last connection of the call broke before its result was out."""
        if self._by_id.get(call.task_id) is call:
            self._abandoned += call.abandoned_at is None
            self._totals.abandon(call, now)

    def reclaim(self, call: Call) -> None:
        """Note that a client came back for the call."""
        self._abandoned -= call.abandoned_at is not None
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

    def add(self, call: Call) -> None:
        self._by_id[call.task_id] = call
        if call.key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[call.key] = call
        self.running += 1
        self.share.call_began()

    def restore(self, call: Call, outcome: Outcome, now: float) -> None:
        """Add a call that an earlier server had published."""
        self.add(call)
        call.compute(outcome, now)
        self.publish(call, outcome, now)

    def publish(self, call: Call, outcome: Outcome, now: float) -> None:
        """Let readers see the outcome, and evict old results beyond the bounds."""
        call.publish(outcome, now)
        self.running -= 1
        size = call.size_bytes
        self._bytes += size
        self.share.call_published(size)
        limits = self._totals.limits
        most = limits.results_per_session
        if len(self._by_id) - self.running > most + most // _SPARE or self._bytes > limits.bytes_per_session:
            self._evict_oldest(limits, call)
        call.wake()

    def _evict_oldest(self, limits: CallLimits, keep: Call) -> None:
        """Evict until the bounds hold, or nothing but ``keep`` is stored."""
        oldest = [each for each in self._by_id.values() if each.outcome is not None and each is not keep]
        for call in oldest:
            if (
                len(self._by_id) - self.running <= limits.results_per_session
                and self._bytes <= limits.bytes_per_session
            ):
                return
            self.evict(call)

    def evict(self, call: Call) -> None:
        """Drop a call and its result; the same request would be a new call."""
        if self._by_id.pop(call.task_id, None) is None:
            return
        if call.key is not None and self._by_key is not None:
            self._by_key.pop(call.key, None)
        size = 0 if call.outcome is None else call.size_bytes
        self._bytes -= size
        self.share.result_evicted(size)
        if call.abandoned_at is not None:
            self._abandoned -= 1
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
