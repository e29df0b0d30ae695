"""A session: one episode on the server, from /create to /delete."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, overload

from orsay_protocol import (
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    ListToolsOutput,
    Message,
    TerminalToolSpec,
    TextBlock,
    ToolOutput,
    ToolSpec,
)
from orsay_protocol.headers import SESSION_ID
from orsay_protocol.texts import well_formed

from . import errors, parse
from .answers import error_for
from .connection import Connection
from .formats import Format, format_messages, format_tools
from .opening import Opening, create, delete, new_sid
from .streams import ResultStream, StreamRules
from .traces import Named

__all__ = ["AsyncSession", "call_body"]

_log = logging.getLogger("orsay_client")
_PING_S = 30.0


class AsyncSession:
    """One episode; use it with ``async with``, which opens it and always ends it.

    Calls may run at the same time. Cancelling one leaves the session usable. When a keep-alive ping finds
    that the server lost the session, the next use raises SessionLost with the server's reason.
    """

    def __init__(self, connection: Connection, opening: Opening) -> None:
        self._connection = connection
        self._opening = opening
        self._redact = connection.redact.also(opening.secrets.values())
        self._headers = dict(opening.headers)
        self._named = Named(opening.trace)
        self._sid = ""
        self._open = False
        self._lost: errors.SessionLost | None = None
        self._at_most_once = False
        self._listing: ListToolsOutput | None = None
        self._rewards: list[float] = []
        self._finished = False
        self.touched_at = 0.0

    def __repr__(self) -> str:
        state = "lost" if self._lost else "open" if self._open else "not open"
        address = self._connection.transport.address
        return f"<{type(self).__name__} {self._sid or '(no id yet)'} at {address}: {state}>"

    @property
    def sid(self) -> str:
        """The session's id on the server; "" before it is open."""
        return self._sid

    @property
    def trace(self) -> str:
        """The session's W3C trace id, which links logs, traces and journals of all servers on the way."""
        return self._named.trace

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the calls so far, in the order in which they were received."""
        return tuple(self._rewards)

    @property
    def reward(self) -> float | None:
        """The last reward so far, None before the first."""
        return self._rewards[-1] if self._rewards else None

    @property
    def finished(self) -> bool:
        """True once a call has answered that the episode is over."""
        return self._finished

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Create the session on the server; deletes it there after a failure or cancellation."""
        self._connection.check_open()
        if self._sid:
            raise errors.ClientClosed("a session is opened once; ask the environment for another")
        with self._named:
            sid = await new_sid(self._connection, self._opening, self._redact)
            self._headers[SESSION_ID] = self._sid = sid
            try:
                created = await create(self._connection, self._opening, self._headers, self._redact)
            except BaseException as exc:
                if not isinstance(exc, errors.RequestError):
                    self._connection.background(delete(self._connection, self._headers, also_sid=True))
                raise
        self._at_most_once = created.at_most_once
        self._named.trace = created.trace or self._named.trace
        self._open = True
        self._touch()
        self._connection.keepalive.watch(self)
        self._connection.sessions.add(self)

    async def close(self) -> None:
        """End the session on the server; safe to call twice.

        It takes a bounded time, and continues in the background if the caller is cancelled.
        """
        if not self._open:
            return
        self._open = False
        self._connection.sessions.discard(self)
        self._connection.keepalive.unwatch(self)
        if self._lost is None:
            work = delete(self._connection, self._headers, also_sid=not self._at_most_once)
            await asyncio.shield(self._connection.background(work))

    async def call(
        self, name: str, input: JSONObject | None = None, *, timeout_s: float | None = None
    ) -> ToolOutput:
        """Run a tool, at most once, however often the connection breaks.

        Raises ToolRefused when the environment refuses it, and for an input that cannot be sent or that the
        server does not take; Fault when there is no answer, and TimeoutError after ``timeout_s``. The session
        stays usable unless it is a SessionLost.
        """
        self._check()
        body = call_body(name, input)
        result = await self._stream("/call", body, timeout_s=timeout_s)
        try:
            output = parse.tool_output(result)
        except errors.ToolRefused as refused:
            raise errors.ToolRefused(self._redact(refused.message), reason=refused.reason) from None
        if output.reward is not None:
            self._rewards.append(output.reward)
        self._finished = self._finished or output.finished
        return output

    async def call_terminal(self, text: str = "", *, timeout_s: float | None = None) -> ToolOutput:
        """Pass the model's last plain message to the terminal tool. Raises Unsupported without one."""
        terminal = await self.terminal_tool()
        if terminal is None:
            raise errors.Unsupported(
                "the environment has no terminal tool: no plain message ends its episodes"
            )
        arguments = {} if terminal.arg is None else {terminal.arg: well_formed(text)}
        return await self.call(terminal.name, arguments, timeout_s=timeout_s)

    async def prompt(self) -> list[TextBlock | ImageBlock]:
        """First message to the model; waits until the environment's setup is done."""
        answer = await self._get("/prompt")
        assert answer is not None
        return parse.prompt(answer)

    @overload
    async def messages(self, format: None = None) -> list[Message]: ...
    @overload
    async def messages(self, format: Literal["openai", "openai_chat"]) -> list[dict[str, Any]]: ...
    @overload
    async def messages(self, format: Literal["anthropic"]) -> dict[str, Any]: ...

    async def messages(
        self, format: Format | None = None
    ) -> list[Message] | list[dict[str, Any]] | dict[str, Any]:
        """The conversation so far; from an older server, its prompt as one message of the user."""
        answer = await self._get("/messages", optional=True)
        if answer is None:
            found = [Message(role="user", blocks=await self.prompt())]
        else:
            found = parse.messages(answer)
        return found if format is None else format_messages(found, format)

    async def listing(self) -> ListToolsOutput:
        """The server's complete listing of this session's tools; from an older one, of the environment's."""
        answer = await self._get("/task_tools", optional=True)
        if answer is None:
            answer = await self._get("/tools")
        self._listing = parse.listing(answer)
        return self._listing

    @overload
    async def tools(self, format: None = None) -> list[ToolSpec]: ...
    @overload
    async def tools(self, format: Format) -> list[dict[str, Any]]: ...

    async def tools(self, format: Format | None = None) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of this session, those of its task included."""
        found = (await self.listing()).tools
        return found if format is None else format_tools(found, format)

    async def terminal_tool(self) -> TerminalToolSpec | None:
        """The tool that takes the model's last plain message; asked once per session."""
        return (self._listing or await self.listing()).terminal_tool

    async def supports_score_group(self) -> bool:
        return bool((self._listing or await self.listing()).supports_score_group)

    async def score_group(
        self,
        candidates: Sequence[GroupCandidate | Sequence[Message]],
        *,
        timeout_s: float | None = None,
    ) -> list[GroupScore]:
        """Score rollouts of this session's task against each other, one score for each in order.

        Raises Unsupported where the environment or its server cannot, ToolRefused for candidates that cannot
        be sent or that the server refuses, and ScoreError if scoring raised; the session stays open.
        """
        self._check()
        group = [c if isinstance(c, GroupCandidate) else GroupCandidate(messages=list(c)) for c in candidates]
        body = {"candidates": [candidate.model_dump() for candidate in group]}
        try:
            result = await self._stream("/score_group", body, timeout_s=timeout_s, scoring=True)
        except errors.SessionLost as lost:
            # 404 has two meanings here; a ping distinguishes them.
            if await self._is_there():
                raise errors.Unsupported("the environment has no group scoring", status=404) from lost
            self._mark_lost(lost)
            raise
        return parse.scores(result, len(group))

    async def ping(self) -> bool:
        """Send a keep-alive; returns False, and marks the session lost, once the server no longer has it."""
        try:
            answer = await self._connection.transport.send(
                "POST", "/ping", headers=self._headers, timeout_s=_PING_S
            )
        except errors.ConnectionLost as lost:
            _log.debug("session %s: ping failed: %s", self._sid, lost)
            return True
        if answer.status in (404, 410):
            error = error_for(answer, "keep-alive", in_session=True, redact=self._redact)
            if isinstance(error, errors.SessionLost):
                self._lost = error
            _log.warning("session %s is lost: %s", self._sid, error)
            return False
        return True

    async def _is_there(self) -> bool:
        with suppress(errors.ConnectionLost):
            answer = await self._connection.transport.send(
                "POST", "/ping", headers=self._headers, timeout_s=_PING_S
            )
            return answer.status == 200
        return False

    async def _get(self, path: str, *, optional: bool = False) -> Any:
        self._check()
        self._touch()
        try:
            with self._named:
                answer = await self._connection.request_if_offered(
                    "GET",
                    self._opening.path(path),
                    headers=self._headers,
                    in_session=True,
                    redact=self._redact,
                    optional=optional,
                )
        except errors.SessionLost as lost:
            self._mark_lost(lost)
            raise
        return None if answer is None else answer.json()

    async def _stream(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float | None, scoring: bool = False
    ) -> Any:
        self._touch()
        settings = self._connection.settings
        rules = StreamRules(
            retry=settings.retry,
            redact=self._redact,
            # Scoring changes nothing in the environment: it may run twice.
            repeatable=self._at_most_once or scoring,
            # The first byte waits for setup: Orsay answers 503 after a while, others wait without a limit.
            answer_s=2 * settings.silence_s if self._at_most_once else settings.timeout_s,
            silence_s=settings.silence_s,
            max_result_bytes=settings.max_answer_bytes,
            bare_error_class="score_error" if scoring else "tool_error",
        )
        stream = ResultStream(
            self._connection.transport, self._opening.path(path), body, self._headers, rules
        )
        try:
            with self._named:
                async with asyncio.timeout(timeout_s):
                    return await stream.result()
        except errors.SessionLost as lost:
            if not scoring:
                self._mark_lost(lost)
            raise
        finally:
            self._touch()

    def _check(self) -> None:
        self._connection.check_open()
        if self._lost is not None:
            with self._named:
                raise copy.copy(self._lost)
        if not self._open:
            raise errors.ClientClosed("the session is not open; use it inside 'async with'")

    def _touch(self) -> None:
        self.touched_at = asyncio.get_running_loop().time()

    def _mark_lost(self, lost: errors.SessionLost) -> None:
        if self._lost is None:
            self._lost = copy.copy(lost)


def call_body(name: str, input: JSONObject | None) -> dict[str, Any]:
    """The body of /call. Raises ToolRefused for input that the server would refuse."""
    input = {} if input is None else input
    if not isinstance(name, str):
        raise errors.ToolRefused("the name of a tool must be a text", reason="input_validation")
    if not isinstance(input, Mapping) or not all(isinstance(key, str) for key in input):
        raise errors.ToolRefused(
            f"the input of tool {name!r} must be a JSON object with string keys", reason="input_validation"
        )
    return {"name": name, "input": dict(input)}
