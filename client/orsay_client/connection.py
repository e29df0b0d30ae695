"""State that the sessions of a client share: transport, retries, keep-alive, background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .answers import error_for, is_missing_route
from .errors import ClientClosed, ConnectionLost
from .keepalive import Keepalive
from .redact import Redact
from .retry import Attempts, Retry
from .transport import Answer, Transport

__all__ = ["Closable", "Connection", "Settings"]

_log = logging.getLogger("orsay_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of a client, from its constructor."""

    retry: Retry = field(default_factory=Retry)
    timeout_s: float = 600.0
    silence_s: float = 30.0
    keepalive_s: float = 10.0
    close_timeout_s: float = 30.0
    max_answer_bytes: int = 256 * 1024 * 1024


class Closable(Protocol):
    """Interface of a session that the client closes."""

    async def close(self) -> None: ...


class Connection:
    """Connection to one server, shared by its environments and sessions."""

    def __init__(self, transport: Transport, settings: Settings, redact: Redact) -> None:
        self.transport = transport
        self.settings = settings
        self.redact = redact
        self.sessions: set[Closable] = set()
        self._keepalive: Keepalive | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def keepalive(self) -> Keepalive:
        if self._keepalive is None:  # created lazily: it belongs to the running loop
            self._keepalive = Keepalive(self.settings.keepalive_s)
        return self._keepalive

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        in_session: bool = False,
        redact: Redact | None = None,
    ) -> Answer:
        """The answer of a request that is safe to repeat. Raises an error for any status but 200."""
        answer = await self.request_if_offered(
            method, path, body=body, headers=headers, in_session=in_session, redact=redact, optional=False
        )
        assert answer is not None
        return answer

    async def request_if_offered(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        in_session: bool = False,
        redact: Redact | None = None,
        optional: bool = True,
    ) -> Answer | None:
        """Same as `request`, but None from a server that lacks the endpoint."""
        self.check_open()
        scrub = redact or self.redact
        attempts = Attempts(self.settings.retry)
        while True:
            try:
                answer = await self.transport.send(method, path, body=body, headers=headers)
            except ConnectionLost as lost:
                delay = attempts.after_break()
                if delay is None:
                    raise ConnectionLost(
                        scrub(f"{lost.message} ({attempts.failures} tries)"), may_have_run=lost.may_have_run
                    ) from lost
            else:
                if answer.status == 200:
                    return answer
                if optional and is_missing_route(answer):
                    return None
                delay = attempts.after_answer(answer.status, answer.headers)
                if delay is None:
                    raise error_for(answer, f"{method} {path}", in_session=in_session, redact=scrub)
            _log.debug("%s %s: trying again in %.2f s", method, path, delay)
            await asyncio.sleep(delay)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that continues if its caller is cancelled; `aclose` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def aclose(self) -> None:
        """Close open sessions, wait for background tasks (each has its own limit), close the connections."""
        self._closed = True
        try:
            await asyncio.gather(*(session.close() for session in list(self.sessions)))
            while self._background:
                await asyncio.wait(set(self._background))
        finally:
            if self._keepalive is not None:
                await self._keepalive.aclose()
            await self.transport.aclose()
