"""Mount for MCP clients: one path for each environment, and the table of their sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import anyio
from mcp.shared.exceptions import McpError
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from ...errors import BadRequest, Faulted, Refused, ShuttingDown, UnknownSession
from ...http.asgi import Receive, Scope, Send, replay
from ...http.opening import secrets_of, traceparent_of
from ...http.operations import OPENING_ERRORS, Operation
from ...http.request import Endpoint, Request
from ...logs import get_logger
from ..session_driver import Choice, SessionDrivers
from .models import failed
from .session import Conversation

__all__ = ["McpMount"]

_log = get_logger(__name__)
_TAG = "mcp"
_SESSION = b"mcp-session-id"
_SWEEP_S = 1.0
_LAST_ANSWERS_S = 2.0


class McpMount:
    """``/mcp`` for the first environment; ``/mcp/{env}`` and ``/{env}/mcp`` for each.

    ``plain`` answers a POST to the same path without a session id and without ``Accept: text/event-stream``,
    as OpenEnv's clients send it.
    """

    operations = (
        Operation(
            "post",
            "/{env}/mcp",
            "MCP: streamable HTTP. `initialize` opens a session; the query names split, index or seed.",
            session=False,
            stream=True,
            headers=("X-Secrets",),
            errors=OPENING_ERRORS,
            tag=_TAG,
            name="mcp",
        ),
        Operation(
            "get",
            "/{env}/mcp",
            "MCP: the server's own events.",
            session=False,
            stream=True,
            tag=_TAG,
            name="mcp_events",
        ),
        Operation("delete", "/{env}/mcp", "MCP: end the session.", session=False, tag=_TAG, name="mcp_end"),
    )

    def __init__(self, drivers: SessionDrivers, *, plain: Endpoint | None, max_body_bytes: int) -> None:
        self._drivers = drivers
        self._plain = plain
        self._max_body = max_body_bytes
        self._methods: dict[str, Endpoint] = {
            "POST": self._post,
            "GET": self._get,
            "DELETE": self._delete,
        }
        self._live: dict[str, Conversation] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False
        logging.getLogger("mcp.server.streamable_http").addFilter(_is_news)

    def find(self, path: str) -> Mapping[str, Endpoint]:
        return self._methods if _environment(path) is not None else {}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        """Finish pending answers, then end the remaining sessions."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        end = asyncio.get_running_loop().time() + _LAST_ANSWERS_S
        while any(each.answering for each in self._live.values()):
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(0.01)
        await asyncio.gather(*(each.end() for each in self._live.values()), return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # requests

    async def _post(self, request: Request) -> None:
        if _SESSION in request.headers:
            conversation = self._find(request)
            body = await request.body(self._max_body)
            await self._hand_over(conversation, request.scope, replay(body, request.receive), request.send)
        elif self._plain is not None and b"text/event-stream" not in request.headers.get(b"accept", b""):
            await self._plain(_without_prefix(request))
        else:
            await self._open(request)

    async def _open(self, request: Request) -> None:
        if self._closed:
            raise ShuttingDown("the server is shutting down and takes no new sessions")
        body = await request.body(self._max_body)
        if _method(body) != "initialize":
            raise BadRequest("no Mcp-Session-Id: a session begins with the request 'initialize'")
        try:
            conversation = await self._begin(request)
        except (Refused, Faulted) as exc:  # as a JSON-RPC error: clients show no text of HTTP errors
            await request.send_json(to_json(_error_response(body, failed(exc, self._drivers.faults))))
            return
        if request.has_gone():  # the client left: nobody knows the session's id
            await conversation.end()
            return
        status = 0

        async def watch(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await request.send(message)

        try:
            await self._hand_over(conversation, request.scope, replay(body, request.receive), watch)
        finally:
            if not 0 < status < 400:  # it was no valid initialize request
                await conversation.end()

    async def _begin(self, request: Request) -> Conversation:
        """Open a session for the task in the query string. Raises Refused or Faulted."""
        info = self._drivers.environment(_environment(request.path) or "")
        driver = await self._drivers.open(
            request.owner,
            info,
            _choice(request.scope),
            secrets_of(request) or {},
            traceparent=traceparent_of(request),
        )
        try:
            conversation = Conversation(driver, await driver.prompt(), self._drivers.faults)
            await conversation.start()
        except BaseException:
            await driver.close()
            raise
        self._live[driver.sid] = conversation
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return conversation

    async def _get(self, request: Request) -> None:
        await self._find(request).transport.handle_request(request.scope, request.receive, request.send)

    async def _delete(self, request: Request) -> None:
        conversation = self._find(request)
        await conversation.driver.close()
        await conversation.transport.handle_request(request.scope, request.receive, request.send)

    async def _hand_over(
        self, conversation: Conversation, scope: Scope, receive: Receive, send: Send
    ) -> None:
        conversation.answering += 1
        try:
            await conversation.transport.handle_request(scope, receive, send)
        finally:
            conversation.answering -= 1

    def _find(self, request: Request) -> Conversation:
        """The conversation of the request; touches its session. Raises BadRequest or UnknownSession."""
        sid = request.headers.get(_SESSION, b"").decode("latin-1")
        if not sid:
            raise BadRequest("Mcp-Session-Id is required: begin with a POST of 'initialize'")
        conversation = self._live.get(sid)
        if conversation is None or conversation.driver.session.owner != request.owner or conversation.ended:
            raise UnknownSession("no MCP session of this id: begin another one with 'initialize'")
        if not conversation.driver.over:  # an ended one answers calls with the reason
            conversation.driver.touch()
        return conversation

    # expiry

    async def _sweep(self) -> None:
        """Remove conversations some time after their end; until then calls get the reason."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                self._sweep_once(asyncio.get_running_loop().time())
            except Exception:
                _log.exception("sweep_failed")

    def _sweep_once(self, now: float) -> None:
        memory_s = self._drivers.sessions.limits.gone_memory_s
        for sid, each in list(self._live.items()):
            if each.driver.over and each.gone_at is None:
                each.gone_at = now
            if each.ended or (each.gone_at is not None and now - each.gone_at > memory_s):
                del self._live[sid]
                task = asyncio.create_task(each.end())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)


def _is_news(record: logging.LogRecord) -> bool:
    """Log filter: drops the package's error about an open event stream at the end of a session."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))


def _environment(path: str) -> str | None:
    """The name in ``/mcp``, ``/mcp/{env}`` or ``/{env}/mcp``; None for other paths."""
    match path.strip("/").split("/"):
        case ["mcp"]:
            return ""
        case ["mcp", name] | [name, "mcp"]:
            return name
        case _:
            return None


def _without_prefix(request: Request) -> Request:
    """The same request in the form ``/{env}/mcp``."""
    path = f"/{_environment(request.path)}/mcp".replace("//", "/")
    scope = {**request.scope, "path": path}
    return Request(scope, request.headers, request.receive, request.send, request.owner)


def _choice(scope: Scope) -> Choice:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    try:
        return Choice.model_validate(query)
    except ValidationError as exc:
        problems = [f"{error['loc'][0]}: {error['msg']}" for error in exc.errors()]
        raise BadRequest(f"the query does not name a task: {'; '.join(problems)}") from None


def _error_response(body: bytes, error: McpError) -> dict[str, Any]:
    shown = error.error.model_dump(exclude_none=True)
    return {"jsonrpc": "2.0", "id": from_json(body).get("id"), "error": shown}


def _method(body: bytes) -> str | None:
    try:
        message = from_json(body)
    except ValueError as exc:
        raise BadRequest(f"the body is no JSON: {exc}") from None
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else None
