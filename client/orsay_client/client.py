"""The asynchronous client: one object per server."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from orsay_protocol.headers import API_KEY

from .connection import Connection, Settings
from .environments import AsyncEnvironment
from .errors import ProtocolError
from .redact import Redact
from .retry import Retry
from .transport import Transport, Verify

__all__ = ["AsyncClient"]


class AsyncClient:
    """Client for the ORS server at ``url``, used as given: nothing is prepended, no variable is read.

    One client serves any number of sessions of one event loop; thousands are fine. Leaving its
    ``async with`` ends sessions that are still open. Pings run on the same loop: a caller who blocks it for
    minutes loses sessions, and is better off with threads or with the synchronous Client.

    ``timeout_s`` bounds the wait for a plain answer (an environment may take long to build);
    ``silence_s`` how long a running call may send nothing, not even a comment, before its connection counts
    as broken. ``trust_env`` lets the process environment name proxies. ``transport`` replaces the network,
    as with httpx.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
        silence_s: float = 30.0,
        keepalive_s: float = 10.0,
        close_timeout_s: float = 30.0,
        max_answer_bytes: int = 256 * 1024 * 1024,
        trust_env: bool = False,
        verify: Verify = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ValueError("the API key holds a character that no header can carry")
        if min(timeout_s, silence_s, keepalive_s, close_timeout_s) <= 0:
            raise ValueError("times must be greater than 0 seconds")
        sent = dict(headers or {})
        if api_key:
            sent[API_KEY] = api_key
        self._connection = Connection(
            Transport(
                url,
                headers=sent,
                timeout_s=timeout_s,
                max_answer_bytes=max_answer_bytes,
                trust_env=trust_env,
                verify=verify,
                transport=transport,
            ),
            Settings(
                retry=retry or Retry(),
                timeout_s=timeout_s,
                silence_s=silence_s,
                keepalive_s=keepalive_s,
                close_timeout_s=close_timeout_s,
                max_answer_bytes=max_answer_bytes,
            ),
            Redact([api_key, httpx.URL(url).password, *sent.values()]),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.transport.address}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End open sessions on the server and close all connections; safe to call twice."""
        await self._connection.aclose()

    async def environments(self) -> list[str]:
        """Names of the server's environments; the first is the default one."""
        answer = (await self._connection.request("GET", "/list_environments")).json()
        if not isinstance(answer, list):
            raise ProtocolError("GET /list_environments: expected a list of names; is this an ORS server?")
        return [str(name) for name in answer]

    def environment(self, name: str | None = None) -> AsyncEnvironment:
        """One environment, by default the server's first. Sends nothing: a wrong name fails at first use."""
        return AsyncEnvironment(self._connection, name)

    async def health(self) -> dict[str, Any]:
        """Answer of /health."""
        answer = (await self._connection.request("GET", "/health")).json()
        return answer if isinstance(answer, dict) else {}

    async def version(self) -> str | None:
        """The server's version; None if the server does not report it."""
        answer = await self._connection.request_if_offered("GET", "/version")
        found = answer.json() if answer is not None else {}
        return str(found["version"]) if isinstance(found, dict) and "version" in found else None
