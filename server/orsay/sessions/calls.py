"""Tool calls and group scores as the server keeps them: run once, read as often as needed.

A call outlives the connection that asked for it. It is found again by its task id, by its idempotency key,
or, when its connection is known to have broken, by the same body sent again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from pydantic_core import from_json, to_json

from ..errors import Faulted, KeyConflict, Refused
from ..journal.values import input_of
from ..runtimes.base import Operation, Stop
from ..runtimes.outcome import Outcome
from .timers import Delay

__all__ = ["Call", "CallLimits", "Calls", "Share", "TaskIds"]


@dataclass(slots=True)
class Share:
    """What one owner has of what counts for all."""

    stored_bytes: int = 0
    in_flight: int = 0


_LONGEST_KEY = 100  # characters that an error repeats
_SORTED_BYTES = 100_000


@dataclass(slots=True)
class CallLimits:
    """Bounds on what is kept, and what counts against them over all sessions."""

    results_per_session: int
    bytes_per_session: int
    bytes_in_all: int
    age_s: float
    stored_bytes: int = 0
    in_flight: int = 0
    orphans: set[Call] = field(default_factory=set)
    shares: dict[str, Share] = field(default_factory=dict)

    def share(self, owner: str) -> Share:
        return self.shares.setdefault(owner, Share())


class Call:
    """One call. ``outcome`` is set once; what came of the result before is in ``heard``.

    ``after`` is how much of its session had ended when it began.
    ``answered``: the result is there, though it may wait for the journal. ``entry`` is the call's row there,
    once it has one, and ``announced`` is done when that is written. ``slow``: it has run for a while.
    """

    __slots__ = (
        "_readers",
        "_waiters",
        "after",
        "announced",
        "answered",
        "body",
        "detached",
        "ended_at",
        "entry",
        "heard",
        "key",
        "meaning",
        "name",
        "operation",
        "orphaned_at",
        "outcome",
        "refused",
        "slow",
        "started_at",
        "stop",
        "streamed_at",
        "task_id",
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
        self.ended_at = 0.0
        self.orphaned_at: float | None = None
        self.outcome: Outcome | None = None
        self.answered = False
        self.slow = False
        self.after = 0
        self.entry = 0
        self.announced: asyncio.Future[bool] | None = None
        self.streamed_at: float | None = None
        self.heard: bytearray | None = None
        self.refused: Refused | None = None
        self.stop: Stop | None = None
        self._readers: tuple[Callable[[], bool], ...] = ()
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.outcome.wire) if self.outcome is not None else 0

    def hear(self, events: bytes) -> None:
        """The call takes long; a part of its result may be here before its end: whole stream events."""
        if self.answered:
            return
        self.slow = True
        if events:
            if self.heard is None:
                self.heard = bytearray()
            self.heard += events
        self._wake()

    def has_more(self, sent: int) -> bool:
        """Whether more than ``sent`` bytes of the result are here while the call runs."""
        return self.heard is not None and len(self.heard) > sent

    def part(self, sent: int) -> bytes:
        """What is here beyond the first ``sent`` bytes of a result that runs, or ended in a fault."""
        return bytes(self.heard[sent:]) if self.heard is not None else b""

    async def wait(self, delay: Delay) -> bool:
        """Wait for the outcome or a part of it, for ``delay`` at most; tells whether the outcome is there."""
        if self.outcome is not None:
            return True
        future = delay.future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(future)
        try:
            await future
        finally:
            self._waiters.remove(future)
        return self.outcome is not None

    def answer(self, outcome: Outcome) -> None:
        """The runtime has answered; nobody reads it before ``finish``."""
        self.answered = True
        self.stop = None
        if self.heard is not None and outcome.wire:
            outcome.wire = bytes(self.heard) + outcome.wire

    def finish(self, outcome: Outcome, now: float) -> None:
        """The outcome is for everybody to read."""
        if outcome.wire:
            self.heard = None  # it is the beginning of that
        self.outcome = outcome
        self.ended_at = now
        self._wake()

    def _wake(self) -> None:
        if self._waiters is not None:
            for future in self._waiters:
                if not future.done():
                    future.set_result(None)

    @property
    def abandoned(self) -> bool:
        """Nobody reads it: the last connection broke, whether or not its handler has looked since."""
        if self.orphaned_at is not None:
            return True
        return bool(self._readers) and all(gone() for gone in self._readers)

    def arrive(self, gone: Callable[[], bool]) -> None:
        """A connection reads this call; ``gone`` tells whether it has broken."""
        self._readers = (*self._readers, gone)
        self.orphaned_at = None

    def leave(self, gone: Callable[[], bool], now: float, *, complete: bool) -> None:
        """A connection is done with this call; not ``complete``: it broke before the result was out."""
        self._readers = tuple(reader for reader in self._readers if reader is not gone)
        if not complete and not self._readers:
            self.orphaned_at = now


class TaskIds:
    """Task ids: 32 hex digits that nobody can guess, drawn from the system many at a time."""

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
    """The calls of one session, running and finished; they count for its owner."""

    __slots__ = ("_by_id", "_by_key", "_bytes", "_limits", "running", "share")

    def __init__(self, limits: CallLimits, owner: str) -> None:
        self._limits = limits
        self.share = limits.share(owner)
        self._by_id: dict[str, Call] = {}
        self._by_key: dict[str, Call] | None = None
        self._bytes = 0
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

        By key; without one, the request repeats a call whose connection broke and which nobody has come
        back for, when the bodies are the same. Raises KeyConflict when the key is that of another request.
        """
        if key is not None:
            call = self._by_key.get(key) if self._by_key is not None else None
            if call is not None and not _is_repeated(call, operation, body):
                raise _key_conflict(call, key)
            return call
        if not self._limits.orphans and not self.running:
            return None
        for call in self._by_id.values():
            if call.operation == operation and call.body == body and call.abandoned:
                return call
        return None

    def add(self, call: Call) -> None:
        self._by_id[call.task_id] = call
        if call.key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[call.key] = call
        self.running += 1
        self._limits.in_flight += 1
        self.share.in_flight += 1

    def restore(self, call: Call, outcome: Outcome, now: float) -> None:
        """A call that was finished before the server was started again."""
        self.add(call)
        call.answer(outcome)
        self.finish(call, outcome, now)

    def finish(self, call: Call, outcome: Outcome, now: float) -> None:
        """Set the outcome, and drop old results beyond the bounds."""
        call.finish(outcome, now)
        self.running -= 1
        self._limits.in_flight -= 1
        self.share.in_flight -= 1
        size = call.size_bytes
        self._bytes += size
        self._limits.stored_bytes += size
        self.share.stored_bytes += size
        limits = self._limits
        if (
            len(self._by_id) - self.running > limits.results_per_session
            or self._bytes > limits.bytes_per_session
        ):
            self._evict(keep=call)

    def _evict(self, keep: Call) -> None:
        """Drop the oldest results until the bounds hold."""
        limits = self._limits
        while (
            len(self._by_id) - self.running > limits.results_per_session
            or self._bytes > limits.bytes_per_session
        ):
            oldest = next((c for c in self._by_id.values() if c.outcome is not None and c is not keep), None)
            if oldest is None:
                return
            self._drop(oldest)

    def forget(self, call: Call) -> None:
        """Nothing ran: the same request may be sent again, and is a new call then."""
        self._drop(call)

    def finished(self) -> list[Call]:
        """Calls whose results are stored."""
        return [call for call in self._by_id.values() if call.outcome is not None]

    def unfinished(self) -> list[Call]:
        """Calls that still run."""
        return [call for call in self._by_id.values() if call.outcome is None]

    def expire(self, now: float) -> None:
        """Drop results older than the limit."""
        oldest = now - self._limits.age_s
        for call in [c for c in self._by_id.values() if c.outcome is not None and c.ended_at < oldest]:
            self._drop(call)

    def clear(self) -> None:
        """The session is over: forget every result, and stop what still runs."""
        for call in list(self._by_id.values()):
            if call.outcome is None and call.answered:
                continue  # its answer is on its way into the journal, and is given out from there
            if call.outcome is None:
                ended = Outcome(fault=Faulted("cancelled", "the session ended"))
                call.answer(ended)
                self.finish(call, ended, call.started_at)
            self._drop(call)

    def _drop(self, call: Call) -> None:
        if self._by_id.pop(call.task_id, None) is None:
            return
        if call.key is not None and self._by_key is not None:
            self._by_key.pop(call.key, None)
        self._bytes -= call.size_bytes
        self._limits.stored_bytes -= call.size_bytes
        self.share.stored_bytes -= call.size_bytes
        self._limits.orphans.discard(call)


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
