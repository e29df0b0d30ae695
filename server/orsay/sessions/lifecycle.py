"""Life cycle of a session as a state machine.

    opening ──> starting ──> ready ──> failed ──> closing ──> closed

A session passes through these states from left to right, and may skip states. No transition leads back: a
late event, such as the end of setup after a deletion, has no effect.

    opening     the environment's constructor runs, or the session is rebuilt after a restart
    starting    its setup runs
    ready       requests are served
    failed      setup ended in a fault; or the session left its runtime, and is rebuilt for the next request
    closing     calls are stopped and the environment is torn down
    closed      for good; a tombstone keeps the reason for a while
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal, TypeAlias

from ..errors import Faulted, Refused, SessionGone, Starting
from ..runtimes.base import Handle

__all__ = ["Lifecycle", "State"]

State: TypeAlias = Literal["opening", "starting", "ready", "failed", "closing", "closed"]

_RANK: dict[State, int] = {
    "opening": 0,
    "starting": 1,
    "ready": 2,
    "failed": 3,
    "closing": 4,
    "closed": 5,
}


class Lifecycle:
    """State of a session, its handle in the runtime, and the futures of its opening and closing.

    These are tasks where the runtime has to be awaited, and plain futures where it calls back.

    ``ready_handle`` is the handle while the state is *ready*, else None. It changes in this class only.
    """

    __slots__ = ("_closing", "_error", "_handle", "_opening", "_state", "_waiters", "ready_handle")

    def __init__(self) -> None:
        self._state: State = "opening"
        self._handle: Handle | None = None
        self.ready_handle: Handle | None = None
        self._error: Faulted | Refused | None = None
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[Faulted | None] | None = None
        self._waiters: set[asyncio.Future[None]] | None = None

    @property
    def state(self) -> State:
        return self._state

    @property
    def handle(self) -> Handle | None:
        """The environment in its runtime; None before it exists and after its end."""
        return self._handle

    @property
    def opening(self) -> asyncio.Future[None] | None:
        """Done when the environment is constructed or rebuilt; None after that."""
        return self._opening

    @property
    def closing(self) -> asyncio.Future[Faulted | None] | None:
        """Done when the environment is torn down, with the fault of teardown."""
        return self._closing

    # transitions

    def begin_opening(self, opening: asyncio.Future[None]) -> None:
        """Set the future of the construction, or of the rebuild."""
        self._opening = opening

    def take_handle(self, handle: Handle) -> None:
        """Set the handle of the environment, which may still be under construction."""
        self._handle = handle
        if self._state == "ready":  # setup was over first
            self.ready_handle = handle

    def opened(self) -> None:
        """Advance: the constructor has run, and the journal has the session. Setup may be over already."""
        self._opening = None
        if self._state == "opening":
            self._state = "starting"  # requests keep waiting

    def begin_closing(self, error: SessionGone, closing: asyncio.Future[Faulted | None]) -> None:
        """Advance to *closing*; ``closing`` is done when the environment is torn down."""
        self._closing = closing
        self._enter("closing", error)

    def release_handle(self) -> Handle | None:
        """Detach the handle; the caller closes it."""
        handle = self._handle
        self._handle = self.ready_handle = None
        return handle

    def _enter(self, state: State, error: Faulted | Refused | None = None) -> None:
        """Advance, and wake the requests that wait for the end of setup."""
        if _RANK[state] <= _RANK[self._state]:
            return
        self._state = state
        self.ready_handle = self._handle if state == "ready" else None
        if error is not None:
            self._error = error
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    # waiting

    def handle_now(self, *, after_setup: bool) -> Handle:
        """The handle, without waiting. Raises Starting, SessionGone, or what setup raised."""
        if self._state in ("closing", "closed"):
            gone = self._error if isinstance(self._error, SessionGone) else SessionGone("Session deleted")
            raise gone.with_traceback(None)
        if self._state == "failed" and self._error is not None:
            raise self._error.with_traceback(None)  # else each raise would add to the last one's traceback
        if self._handle is None or self._state == "opening" or (after_setup and self._state != "ready"):
            raise Starting("Environment still starting.")
        return self._handle

    async def _setup_over(self, timeout_s: float) -> None:
        """Wait for the end of setup, at most ``timeout_s``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = set()
        self._waiters.add(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await future
        finally:
            if self._waiters is not None:
                self._waiters.discard(future)
