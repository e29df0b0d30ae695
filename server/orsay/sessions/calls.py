"""The calls of sessions: an idempotency store, bounded by number, bytes and age of its results.

A call is found again by its task id, by its idempotency key, or, when its connection is known to have broken,
by the same body sent again.
"""

from __future__ import annotations

from ..errors import Faulted, KeyConflict, Overloaded
from ..runtimes.base import Operation
from ..runtimes.outcome import Outcome
from .call import Call
from .limits import CallLimits, SessionLimits
from .repeats import is_repeated

__all__ = ["CallTotals", "Calls", "Share"]

_SPARE = 8  # an eighth over the bound is allowed, so that one search evicts several results
_LONGEST_KEY = 100  # characters that an error repeats


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
        """Start the grace period of a call."""
        call.abandoned_at = now
        self._abandoned.add(call)

    def reclaim(self, call: Call) -> None:
        """End the grace period of a call."""
        call.abandoned_at = None
        self._abandoned.discard(call)

    def forget(self, call: Call) -> None:
        """Remove an evicted call, abandoned or not."""
        self._abandoned.discard(call)

    def stop_abandoned(self, before: float) -> None:
        """Stop the calls abandoned ``before`` that time, except for detached ones."""
        for call in [c for c in self._abandoned if c.abandoned_at is not None and c.abandoned_at < before]:
            self._abandoned.discard(call)
            if call.stop is not None and not call.detached:
                call.stop()


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
        """The call of that task id, if it was made at this endpoint."""
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
            if call is not None and not is_repeated(call, operation, body):
                raise _key_conflict(call, key)
            return call
        if not self.running and not self.abandoned:
            return None
        for call in self._by_id.values():
            if call.operation == operation and call.body == body and call.abandoned:
                return call
        return None

    def abandon(self, call: Call, now: float) -> None:
        """Note that the last connection of the call broke before its result was delivered."""
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

    @property
    def uncomputed(self) -> list[Call]:
        """Calls that run."""
        if not self.running:
            return []
        return [call for call in self._by_id.values() if call.computed is None]

    def add(self, call: Call, limits: SessionLimits | None = None) -> None:
        """Add a call that will run. Raises Overloaded if the server or the owner has reached ``limits``."""
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
        """Show readers the outcome, and evict old results beyond the bounds."""
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
        """Evict the oldest results until the bounds hold, or only ``keep`` is stored."""
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
        old = []
        for call in self._by_id.values():
            if call.started_at >= oldest:  # so are all that were added later
                break
            if call.outcome is not None and call.published_at < oldest:
                old.append(call)
        for call in old:
            self.evict(call)

    def clear(self) -> None:
        """Evict all results and cancel running calls, at the end of the session.

        A computed call stays until the journal has committed it, and is published then.
        """
        for call in list(self._by_id.values()):
            if call.computed is None:
                cancelled = Outcome(fault=Faulted("cancelled", "the session ended"))
                call.compute(cancelled, call.started_at)
                self.publish(call, cancelled, call.started_at)
            if call.outcome is not None:
                self.evict(call)


def _key_conflict(call: Call, key: str) -> KeyConflict:
    what = f"a call of {call.name!r}" if call.operation == "call" else "a group score"
    return KeyConflict(
        f"Idempotency-Key {key[:_LONGEST_KEY]!r} belongs to another request of this session: {what}, task_id "
        f"{call.task_id}. Send that request as it was to read its result, or this one with a key of its own"
    )
