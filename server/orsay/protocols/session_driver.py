"""Session driver for other protocols: opens a session for a task, reads its prompt, calls tools, closes it.

A thin layer over ``orsay.sessions``: it waits where an ORS client would retry, and parses results back into
models.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping
from typing import Any

from orsay_protocol.blocks import ImageBlock, Message, TextBlock
from orsay_protocol.requests import CallTool, CreateSession
from orsay_protocol.sse import Decoder
from orsay_protocol.tools import ListToolsOutput, RunToolError, RunToolOutput, RunToolSuccess, ToolSpec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter

from ..errors import BadTask, Faulted, InvalidIndex, SessionConflict, Starting
from ..faults import FaultLog
from ..http.choice import choose
from ..http.opening import open_request
from ..runtimes.base import EnvironmentInfo, Handle, TaskQuery
from ..sessions.call import Call
from ..sessions.registry import Sessions
from ..sessions.session import Session
from ..sessions.timers import Delay

__all__ = ["Choice", "SessionDriver", "SessionDrivers", "all_tools"]

_BLOCKS = TypeAdapter(list[TextBlock | ImageBlock])
_MESSAGES = TypeAdapter(list[Message])
_RANDOM = random.SystemRandom()
_ASK_AGAIN_S = 0.25


class Choice(BaseModel):
    """Choice of a task: by index, by seed (the same one for the same seed), or any."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    split: str | None = None
    index: int | None = Field(None, validation_alias=AliasChoices("index", "task_index"))
    seed: int | None = None
    task_spec: dict[str, Any] | None = None
    toolset_name: str | None = None


class SessionDrivers:
    """Factory and lookup of session drivers."""

    def __init__(self, sessions: Sessions, *, index_only: bool) -> None:
        self.sessions = sessions
        self._index_only = index_only
        self._pause = Delay(1.0)

    @property
    def faults(self) -> FaultLog:
        return self.sessions.faults

    def environment(self, name: str) -> EnvironmentInfo:
        """The environment of that name; the first one for an empty name. Raises UnknownEnvironment or
        Starting.
        """
        return choose(self.sessions.runtime, name, None)

    async def open(
        self,
        owner: str,
        info: EnvironmentInfo,
        choice: Choice,
        secrets: dict[str, str],
        sid: str | None = None,
        *,
        traceparent: str | None = None,
    ) -> SessionDriver:
        """Open a session and wait for setup. Raises their errors, and leaves no session behind then."""
        body = await self._body(info, choice)
        request = open_request(info, body, secrets, index_only=self._index_only, traceparent=traceparent)
        sid = sid or str(uuid.uuid4())
        try:
            session = await self.sessions.create(sid, owner, info, request)
            driver = SessionDriver(self.sessions, session, self._pause, split=body.split, index=body.index)
            await driver.ready()
        except SessionConflict:
            raise  # another session has that id
        except BaseException:
            await self.sessions.delete(sid, owner)
            raise
        return driver

    def find(self, owner: str, sid: str) -> SessionDriver:
        """Driver of an open session. Raises SessionGone or UnknownSession."""
        return SessionDriver(self.sessions, self.sessions.get(sid, owner), self._pause)

    async def _body(self, info: EnvironmentInfo, choice: Choice) -> CreateSession:
        if choice.task_spec is not None:
            return CreateSession(task_spec=choice.task_spec, toolset_name=choice.toolset_name)
        split = choice.split
        if split is None:
            if not info.splits:
                raise BadTask(f"environment {info.name!r} has no splits: send a task_spec")
            split = info.splits[0].name
        index = choice.index
        if index is None:
            count = int(await self.sessions.runtime.tasks(TaskQuery(key=info.key, split=split, ask="count")))
            if count == 0:
                raise InvalidIndex(f"split {split!r} of {info.name!r} has no tasks")
            index = _RANDOM.randrange(count) if choice.seed is None else choice.seed % count
        return CreateSession(split=split, index=index, toolset_name=choice.toolset_name)


class SessionDriver:
    """One session. Every method raises SessionGone once it has ended, and Faulted when author code failed."""

    def __init__(
        self,
        sessions: Sessions,
        session: Session,
        pause: Delay,
        *,
        split: str | None = None,
        index: int | None = None,
    ) -> None:
        self._sessions = sessions
        self._pause = pause
        self.session = session
        self.split = split
        self.index = index

    @property
    def sid(self) -> str:
        return self.session.sid

    @property
    def info(self) -> EnvironmentInfo:
        return self.session.info

    @property
    def over(self) -> bool:
        """True once the session has ended."""
        return self.session.state == "closed"

    def touch(self) -> Session:
        """The live session; resets its idle time. Raises SessionGone or UnknownSession."""
        return self._sessions.get(self.sid, self.session.owner)

    async def ready(self) -> Handle:
        """Wait for setup, which has its own time limit."""
        while True:
            try:
                return await self.touch().ready()
            except Starting:  # it may come at once, so pause before the next attempt
                if self._sessions.stopping:
                    raise
                await asyncio.sleep(_ASK_AGAIN_S)

    async def prompt(self) -> list[TextBlock | ImageBlock]:
        return _BLOCKS.validate_json(await self.session.ask(await self.ready(), "prompt"))

    async def messages(self) -> list[Message]:
        return _MESSAGES.validate_json(await self.session.ask(await self.ready(), "messages"))

    async def tools(self) -> list[ToolSpec]:
        """The tools of this session and the terminal one, as these protocols have no final plain message."""
        answer = await self.session.ask(await self.ready(), "task_tools")
        return all_tools(ListToolsOutput.model_validate_json(answer))

    async def call(
        self, name: str, arguments: Mapping[str, Any], key: str | None = None
    ) -> RunToolSuccess | RunToolError:
        """Run a tool. With ``key``, a call of the same key is answered with the result of the first."""
        handle = await self.ready()
        session = self.session
        body = CallTool(name=name, input=dict(arguments)).model_dump_json(exclude_none=True).encode()
        call = session.start_call(handle, "call", name, body, key)
        try:
            while not await call.wait(self._pause):
                pass
        except asyncio.CancelledError:
            if call.stop is not None and not call.detached and key is None:
                call.stop()
            raise
        if key is None and session.calls is not None:
            session.calls.evict(call)  # no client can repeat it
        return _answer(call)

    async def close(self) -> None:
        """End the session, and wait until it is torn down."""
        await self._sessions.delete(self.sid, self.session.owner)


def all_tools(listing: ListToolsOutput) -> list[ToolSpec]:
    """The listed tools, with the terminal one as an ordinary tool."""
    tools = list(listing.tools)
    last = listing.terminal_tool
    if last is not None and all(tool.name != last.name for tool in tools):
        schema = None
        if last.arg is not None:
            schema = {
                "type": "object",
                "properties": {last.arg: {"type": "string"}},
                "required": [last.arg],
            }
        tools.append(ToolSpec(name=last.name, description=last.description, input_schema=schema))
    return tools


def _answer(call: Call) -> RunToolSuccess | RunToolError:
    if call.refused is not None:
        raise call.refused
    assert call.outcome is not None
    if call.outcome.fault is not None:
        raise call.outcome.fault.with_traceback(None)
    if not call.outcome.wire:
        raise Faulted("internal", "an outcome without content")
    events = Decoder().feed(call.outcome.wire)
    return RunToolOutput.model_validate_json(
        "".join(event.data for event in events if event.event in ("chunk", "end"))
    ).root
