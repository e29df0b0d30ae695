"""Commands of one sandbox, kept for clients that ask again for their results."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable

from .sandbox import RunResult

__all__ = ["Run", "Runs", "digest_of"]

_DELIVERED_S = 60.0  # a client that has the answer does not come back for it later
_EXPIRED_S = 300.0  # a client that was away so long has given up
_UNREAD_S = 2.5  # a connection found broken so early may have broken before the client knew the id
_RETRY_S = 15.0  # the longest pause of a client before it asks again, and some
_FORGOTTEN = 4096
_LARGE = 1 << 20


async def digest_of(request: bytes) -> bytes:
    """Digest of a request's body; that of a large one is made on a thread."""
    if len(request) < _LARGE:
        return hashlib.sha256(request).digest()
    return (await asyncio.to_thread(hashlib.sha256, request)).digest()


class Run:
    """A command, running or ended. It goes on when its client leaves."""

    def __init__(self, digest: bytes, work: Awaitable[RunResult]) -> None:
        self.id = f"run-{secrets.token_hex(12)}"
        self.digest = digest
        """Of what it was made from: a request with the same one may be the same request once more."""
        self.result: asyncio.Future[RunResult] = asyncio.ensure_future(work)
        self.readers: list[Callable[[], bool]] = []
        """For each client that waits for the answer, what tells whether it has gone."""
        self.result.add_done_callback(self._ended)
        self.started_at = time.monotonic()
        self._ended_at: float | None = None
        self._unread_at: float | None = None
        self.delivered_at: float | None = None

    def _ended(self, _result: asyncio.Future[RunResult]) -> None:
        self._ended_at = time.monotonic()

    @property
    def has_expired(self) -> bool:
        """True where its result is kept for nobody: it was delivered a while ago, or never asked for."""
        now = time.monotonic()
        if self.delivered_at is not None:
            return now - self.delivered_at > _DELIVERED_S
        return self._ended_at is not None and now - self._ended_at > _EXPIRED_S

    def left(self) -> None:
        """Note that a client left before it had the answer."""
        now = time.monotonic()
        self._unread_at = now if now - self.started_at < _UNREAD_S else None

    @property
    def is_left_behind(self) -> bool:
        """True where its only client may not know its id, and may ask for the same once more."""
        now = time.monotonic()
        if self.readers:
            return now - self.started_at < _UNREAD_S and all(has_gone() for has_gone in self.readers)
        return self._unread_at is not None and now - self._unread_at < _RETRY_S

    def delivered(self) -> None:
        """Note that a client has the whole answer."""
        self.delivered_at = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes of its output; 0 while it runs."""
        if not self.result.done() or self.result.cancelled() or self.result.exception() is not None:
            return 0
        return len(self.result.result().output)


class Runs:
    """The commands of one sandbox.

    A result is kept for a while after it was delivered, for longer where it was not, and in all
    ``stored_bytes`` of them besides the newest; delivered ones go first. So they do while ``room`` gives a
    negative number, of bytes that the results of several sandboxes are too many.
    """

    def __init__(self, stored_bytes: int, room: Callable[[], int] = lambda: 0) -> None:
        self._stored_bytes = stored_bytes
        self._room = room
        self._runs: dict[str, Run] = {}
        self._forgotten: dict[str, None] = {}

    @property
    def size(self) -> int:
        """Bytes of all results."""
        return sum(run.size for run in self._runs.values())

    def start(self, digest: bytes, work: Awaitable[RunResult]) -> Run:
        """Run a command, and keep it."""
        self.sweep()
        run = Run(digest, work)
        self._runs[run.id] = run
        return run

    def find(self, run_id: str) -> Run | None:
        """The command of that id, if it is kept."""
        return self._runs.get(run_id)

    def was_forgotten(self, run_id: str) -> bool:
        """True for a command that has run, and whose result is kept no longer."""
        return run_id in self._forgotten

    def left_behind(self, digest: bytes) -> Run | None:
        """A command of the same request, whose client lost its connection before it had the answer."""
        for run in self._runs.values():
            if run.is_left_behind and run.digest == digest:
                return run
        return None

    def sweep(self) -> None:
        """Forget old results."""
        excess = max(self.size - self._stored_bytes, -self._room())
        for run in sorted(self._runs.values(), key=lambda each: each.delivered_at is None):
            if not run.result.done() or run.readers:
                continue
            if run.has_expired or (excess > 0 and run.size):
                excess -= run.size
                del self._runs[run.id]
                self._forgotten[run.id] = None
        while len(self._forgotten) > _FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def close(self) -> None:
        """Forget all; the sandbox has ended, and with it what ran."""
        for run in self._runs.values():
            run.result.cancel()
            with contextlib.suppress(asyncio.InvalidStateError, asyncio.CancelledError):
                run.result.exception()
        self._runs.clear()
