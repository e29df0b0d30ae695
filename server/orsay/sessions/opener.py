"""Opening of a session: its environment in the runtime, then its row in the journal.

By callbacks if the runtime supports them, since a task and its futures are a tenth of the cost of an episode;
otherwise in a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import Faulted, OpeningLost, Overloaded, Refused, SessionGone
from ..runtimes.base import ClosesByCallback, OpensByCallback, OpenSession, Runtime
from .session import Session
from .shared import Shared

__all__ = ["Opener", "deleted_early", "fail"]


class Opener:
    """Opens the sessions of a server. ``spawn`` starts a task, ``remove`` clears a session's table entry."""

    def __init__(
        self,
        runtime: Runtime,
        shared: Shared[Session],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        remove: Callable[[Session], None],
    ) -> None:
        self._runtime = runtime
        self._shared = shared
        self._spawn = spawn
        self._remove = remove

    def start(self, session: Session, request: OpenSession) -> asyncio.Future[None]:
        """Open the session; the future is done when the journal has it, and fails as ``Sessions.create``.

        A deletion of the session meanwhile cancels a task, and fails a plain future. With a plain future the
        session has its handle from the start, and closing the handle stops the opening.
        """
        runtime = self._runtime
        opening = self._begin(runtime, session, request) if isinstance(runtime, OpensByCallback) else None
        return opening or self._spawn(self._open(session, request))

    def _begin(
        self, runtime: OpensByCallback, session: Session, request: OpenSession
    ) -> asyncio.Future[None] | None:
        """As ``_open``, by callbacks; None if the runtime has to be awaited."""
        opening = _Opening(self, session)
        handle = runtime.start_open(request, session, opening.constructed)
        if handle is None:
            return None
        session.take_handle(handle)
        return opening.future

    async def _open(self, session: Session, request: OpenSession) -> None:
        try:
            session.take_handle(await self._runtime.open(request, session))
            await self._record_opening(session)
        except asyncio.CancelledError:
            if session.state == "closing":
                raise deleted_early() from None
            raise
        except BaseException as error:
            lost = self.failed(session, error)
            if lost is not None:
                raise lost from error
            raise
        self.opened(session)

    async def _record_opening(self, session: Session) -> None:
        """Wait until the journal has the session. Raises Overloaded if a required journal refuses it."""
        if session.record is None or await session.record.session_opened() or not self.needs_journal:
            return
        handle = session.release_handle()
        if handle is not None:
            await handle.close()
        raise _not_recorded()

    @property
    def needs_journal(self) -> bool:
        return self._shared.needs_journal

    def opened(self, session: Session) -> None:
        """Note that the environment is constructed and the journal has the session."""
        session.opened()
        self._shared.meter.session_opened(session.info.name)

    def failed(self, session: Session, error: BaseException) -> OpeningLost | None:
        """Remove the session, unless it is being deleted. Returns what clients get in place of the error."""
        if isinstance(error, Faulted | Refused):
            error.redact(session.hide)
        if session.state != "closing":
            self._remove(session)
            session.opening_failed(error)
            if isinstance(error, Faulted) and error.fault == "worker_lost":
                return OpeningLost(error.message)
        return None


class _Opening:
    """Callbacks of one opening. Closures that call each other would be a reference cycle, which keeps the
    session until the garbage collector runs.
    """

    __slots__ = ("_opener", "_session", "future")

    def __init__(self, opener: Opener, session: Session) -> None:
        self._opener = opener
        self._session = session
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def constructed(self, _: object, error: Faulted | Refused | None) -> None:
        """Callback of the runtime: the constructor has run, or failed."""
        if self.future.done():  # deleted meanwhile
            return
        record = self._session.record
        if error is not None:
            fail(self.future, self._opener.failed(self._session, error) or error)
        elif record is None:
            self._recorded(True)
        else:
            record.write_opening(self._recorded)

    def _recorded(self, committed: bool) -> None:
        if self.future.done():
            return
        if committed or not self._opener.needs_journal:
            self._opener.opened(self._session)
            self.future.set_result(None)
            return
        handle = self._session.release_handle()
        if isinstance(handle, ClosesByCallback):
            handle.start_close(self._closed_again)
        else:  # lost or suspended meanwhile
            self._closed_again(None, None)

    def _closed_again(self, _: object, error: Faulted | Refused | None) -> None:
        self.constructed(None, error or _not_recorded())


def fail(future: asyncio.Future[None], error: BaseException) -> None:
    """Set the exception, and mark it as retrieved, since nobody may be waiting."""
    future.set_exception(error)
    future.exception()


def deleted_early() -> SessionGone:
    return SessionGone("Session deleted while it was constructed")


def _not_recorded() -> Overloaded:
    return Overloaded("the journal takes no sessions, and this server plays none without it")
