"""Trial calls that show which tools of an environment work, end the episode, count, repeat or wait."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import httpx

from .counting import Counter, find_counter
from .echo import Echo, find_echo
from .failures import Failed, NotSupported
from .inputs import fitting, only_string_property, property_named
from .reply import Reply

__all__ = ["Probe", "ProbedServer", "ProbedSession", "Roles", "Waiting"]

_TOOLS_TRIED = 24
_WORDS = "conformance check 7f3a"
_WAITS = re.compile("second|sleep|delay|duration|wait", re.IGNORECASE)
_WAIT_S = 0.3
_TWICE_S = 2
_Found = TypeVar("_Found")


class ProbedSession(Protocol):
    """Interface of a session that the probe uses."""

    async def get(self, path: str) -> httpx.Response: ...

    async def call(self, name: str, value: Mapping[str, Any]) -> Reply: ...


class ProbedServer(Protocol):
    """Interface of the server under test that the probe uses."""

    env: str
    tools: dict[str, Any]

    def path(self, suffix: str) -> str: ...

    def tool_specs(self) -> list[dict[str, Any]]: ...

    def session(self) -> AbstractAsyncContextManager[ProbedSession]: ...


@dataclass(frozen=True, slots=True)
class Roles:
    """Tools that the user named, in place of discovered ones. ``counting`` may end in ``:STEP``."""

    counting: str | None = None
    echo: str | None = None
    waiting: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A tool whose duration is its numeric argument ``field``; ``value`` is an input for a short duration.

    ``took_s`` is the measured duration for ``value``.
    """

    tool: str
    field: str
    value: dict[str, Any]
    took_s: float

    @property
    def seconds(self) -> float:
        """The short duration; a whole number if the tool takes only integers."""
        seconds: float = self.value[self.field]
        return seconds

    def taking(self, seconds: float) -> dict[str, Any]:
        """The input of a call of that duration."""
        return {**self.value, self.field: seconds}


@dataclass(slots=True)
class _Tried:
    """The first answer of each tool, by outcome; ``broken`` are unreadable streams."""

    working: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finishing: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    raising: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


class Probe:
    """Cache of trial calls: each is made once, when a check first needs it."""

    def __init__(self, target: ProbedServer, roles: Roles) -> None:
        self._target = target
        self._roles = roles
        self._asked: dict[str, asyncio.Task[Any]] = {}

    async def close(self) -> None:
        """Cancel running trials."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def replies(self) -> dict[str, Reply]:
        """The first answer of each tool to an input made from its schema."""
        return (await self._once("tried", self._try_tools)).replies

    async def working(self) -> tuple[str, dict[str, Any]]:
        """A call that works and, where possible, does not end the episode."""
        tried = await self._once("tried", self._try_tools)
        words = "no tool of this environment accepts an input made from its schema"
        return self._first([*tried.working, *tried.finishing], words)

    async def going_on(self) -> tuple[str, dict[str, Any]] | None:
        """A call that works and does not end the episode, or None."""
        tried = await self._once("tried", self._try_tools)
        return tried.working[0] if tried.working else None

    async def finishing(self) -> tuple[str, dict[str, Any]]:
        """A call that ends the episode."""
        tried = await self._once("tried", self._try_tools)
        words = "no tool of this environment ends the episode with an input made from its schema"
        return self._first(tried.finishing, words)

    async def raising(self) -> tuple[str, dict[str, Any]]:
        """A call of a non-terminal tool that raises."""
        tried = await self._once("tried", self._try_tools)
        listed = {spec["name"] for spec in self._target.tool_specs()}
        found = [(name, value) for name, value in tried.raising if name in listed]
        words = "no tool of this environment raises on an input made from its schema"
        return self._first(found, words)

    async def counter(self) -> Counter:
        """A call whose answer counts the runs of its tool."""
        found = await self._once("counter", self._find_counter)
        if found is None:
            tried = await self._once("tried", self._try_tools)
            words = "no tool was found that counts its calls; one can be named with --counting-tool"
            raise self._missing(tried, words)
        return found

    async def counter_if_any(self) -> Counter | None:
        """Same as ``counter``, but None if no counter is reliable; the checks of D2 report the reason."""
        try:
            return await self._once("counter", self._find_counter)
        except (Failed, NotSupported):
            return None

    async def echo(self) -> Echo:
        """A tool that returns the text it is sent."""
        found, why_not = await self._once("echo", self._find_echo)
        if found is None:
            raise NotSupported(f"{why_not}; a tool can be named with --echo-tool")
        return found

    async def waiting(self) -> Waiting:
        """A tool whose duration is its argument."""
        found = await self._once("waiting", self._find_waiting)
        if found is None:
            raise NotSupported(
                "no tool takes as long as its argument asks; one can be named with --waiting-tool"
            )
        return found

    async def takes_twice(self) -> str | None:
        """Description of a waiting tool that took twice the requested time, two times in a row; else None."""
        return await self._once("twice", self._takes_twice)

    async def _once(self, name: str, ask: Callable[[], Awaitable[_Found]]) -> _Found:
        if name not in self._asked:
            self._asked[name] = asyncio.ensure_future(ask())
        found: _Found = await asyncio.shield(self._asked[name])
        return found

    def _first(self, found: list[tuple[str, dict[str, Any]]], otherwise: str) -> tuple[str, dict[str, Any]]:
        if found:
            return found[0]
        raise self._missing(self._asked["tried"].result(), otherwise)

    def _missing(self, tried: _Tried, otherwise: str) -> Exception:
        """Exception for a missing tool; unreadable answers, if any, are the reason."""
        for words in tried.broken.values():
            return Failed(words)
        return NotSupported(otherwise)

    async def _try_tools(self) -> _Tried:
        """Call every tool once, each in a fresh session."""
        tried = _Tried()
        calls = [(spec["name"], self._input_of(spec)) for spec in self._target.tool_specs()[:_TOOLS_TRIED]]
        terminal = self._target.tools.get("terminal_tool")
        if terminal:
            calls.append((terminal["name"], {} if terminal["arg"] is None else {terminal["arg"]: _WORDS}))
        for name, value in calls:
            reply = tried.replies[name] = await self._alone(name, value)
            if reply.raised is not None:
                tried.raising.append((name, value))
                continue
            try:
                result = reply.result
            except Failed as exc:
                tried.broken[name] = f"{name}: {exc}"
                continue
            output = result.get("output") if result.get("ok") else None
            if isinstance(output, dict):
                (tried.finishing if output.get("finished") is True else tried.working).append((name, value))
        return tried

    def _input_of(self, spec: dict[str, Any]) -> dict[str, Any]:
        value = fitting(spec["input_schema"])
        free = only_string_property(spec["input_schema"])
        return {**value, free: _WORDS} if free else value

    async def _alone(self, name: str, value: dict[str, Any]) -> Reply:
        async with self._target.session() as session:
            return await session.call(name, value)

    async def _find_counter(self) -> Counter | None:
        if self._roles.counting is None:
            tried = await self._once("tried", self._try_tools)
            return await find_counter(
                tried.working, self._again_and_again, declared=False, witness=self.takes_twice
            )
        name, _, step = self._roles.counting.rpartition(":")
        if not name or not step.isdigit():
            name, step = self._roles.counting, "1"
        called = [(name, fitting(self._spec(name)["input_schema"]))]
        return await find_counter(called, self._again_and_again, declared=True, step=int(step))

    async def _again_and_again(self, name: str, value: dict[str, Any]) -> AsyncGenerator[Reply, None]:
        async with self._target.session() as session:
            while True:
                reply = await session.call(name, value)
                if reply.raised is not None or reply.result.get("ok") is False:
                    return
                yield reply

    async def _find_echo(self) -> tuple[Echo | None, str]:
        if self._roles.echo is not None:
            free = only_string_property(self._spec(self._roles.echo)["input_schema"])
            if free is None:
                raise Failed(f"{self._roles.echo} has no single argument that is a free text")
            return Echo(self._roles.echo, free), ""
        free_texts = [
            (spec["name"], free)
            for spec in self._target.tool_specs()[:_TOOLS_TRIED]
            if (free := only_string_property(spec["input_schema"]))
        ]
        return await find_echo(free_texts, self._alone)

    async def _find_waiting(self) -> Waiting | None:
        specs = self._target.tool_specs()[:_TOOLS_TRIED]
        if self._roles.waiting is not None:
            specs = [self._spec(self._roles.waiting)]
        for spec in specs:
            number = property_named(_WAITS, spec["input_schema"])
            if number is None:
                continue
            seconds = 1 if number[1] == "integer" else _WAIT_S
            value = {**fitting(spec["input_schema"]), number[0]: seconds}
            reply, took_s = await self._timed(spec["name"], value)
            if reply.raised is None and reply.result.get("ok") and took_s >= seconds:
                return Waiting(spec["name"], number[0], value, took_s)
        return None

    async def _timed(self, name: str, value: dict[str, Any]) -> tuple[Reply, float]:
        """The answer of a call in a fresh session, and its duration without setup."""
        async with self._target.session() as session:
            await session.get(self._target.path("/prompt"))
            begun = time.monotonic()
            reply = await session.call(name, value)
            return reply, time.monotonic() - begun

    async def _takes_twice(self) -> str | None:
        try:
            waiting = await self.waiting()
            if waiting.took_s < 2 * waiting.seconds:
                return None
            for _ in range(2):
                reply, took_s = await self._timed(waiting.tool, waiting.taking(_TWICE_S))
                if reply.result.get("ok") is not True or took_s <= 1.8 * _TWICE_S + 0.3:
                    return None
                # A slow server adds the same overhead to a short and a long call.
                if took_s - waiting.took_s <= 1.8 * (_TWICE_S - waiting.seconds):
                    return None
        except (Failed, NotSupported):
            return None
        return f"{waiting.tool} of {_TWICE_S} s takes {took_s:.1f} s"

    def _spec(self, name: str) -> dict[str, Any]:
        spec = next((each for each in self._target.tool_specs() if each["name"] == name), None)
        if spec is None:
            raise Failed(f"the environment {self._target.env} lists no tool {name!r}")
        return spec
