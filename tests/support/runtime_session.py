"""A session of a runtime, as the server's Session holds one, and its operations."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from orsay.errors import Faulted, Refused
from orsay.runtimes.base import Handle, OpenSession, Operation, Runtime, Stop
from orsay.runtimes.outcome import Outcome
from orsay_protocol.faults import FaultClass
from orsay_protocol.sse import Decoder

from .waiting import until

__all__ = ["RunningOperation", "RuntimeSession", "open_session"]

_WAIT_S = 15.0


class RunningOperation:
    """An operation under way."""

    def __init__(self) -> None:
        self.answers: list[tuple[Any, Faulted | Refused | None]] = []
        self.stop: Stop
        self._ended = asyncio.Event()

    def done(self, value: Any, error: Faulted | Refused | None) -> None:
        self.answers.append((value, error))
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def value(self) -> Any:
        async with asyncio.timeout(_WAIT_S):
            await self._ended.wait()
        assert len(self.answers) == 1, "answered more than once"
        value, error = self.answers[0]
        if error is not None:
            raise error
        return value

    async def fault(self) -> Faulted:
        try:
            value = await self.value()
        except Faulted as fault:
            return fault
        raise AssertionError(f"no fault but {repr(value)[:300]}")

    async def result(self) -> Any:
        """JSON of the answer; the stream events are put together where there are any."""
        value = await self.value()
        if not isinstance(value, Outcome):
            return json.loads(value)
        events = Decoder().feed(value.wire)
        assert [event.event for event in events] == ["chunk"] * (len(events) - 1) + ["end"]
        return json.loads("".join(event.data for event in events))

    async def text(self) -> str:
        """Text of the first block of a tool's output."""
        text: str = (await self.result())["output"]["blocks"][0]["text"]
        return text

    async def reason(self) -> str:
        """Why the call was refused."""
        result = await self.result()
        assert result["ok"] is False
        return str(result["reason"])


class RuntimeSession:
    """One session, as the server's Session holds it; it is the Listener too."""

    def __init__(self) -> None:
        self.handle: Handle
        self.setups: list[Faulted | Refused | None] = []
        self.losses: list[tuple[FaultClass, str]] = []
        self._changed = asyncio.Event()

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        self.setups.append(error)
        self._changed.set()

    def lost(self, fault: FaultClass, reason: str) -> None:
        self.losses.append((fault, reason))
        self._changed.set()

    async def ready(self) -> Faulted | Refused | None:
        """How setup ended."""
        await until(lambda: self.setups)
        assert len(self.setups) == 1
        return self.setups[0]

    async def is_lost(self) -> tuple[FaultClass, str]:
        await until(lambda: self.losses)
        assert len(self.losses) == 1
        return self.losses[0]

    def start(self, operation: Operation, body: bytes = b"", limit_s: float = 20.0) -> RunningOperation:
        running = RunningOperation()
        running.stop = self.handle.start(operation, body, running.done, limit_s=limit_s)
        return running

    def call(self, name: str, *, limit_s: float = 20.0, **arguments: Any) -> RunningOperation:
        body = json.dumps({"name": name, "input": arguments}).encode()
        return self.start("call", body, limit_s)

    def score(self, candidates: int) -> RunningOperation:
        message = {"role": "assistant", "blocks": [{"type": "text", "text": "hi"}]}
        body = {"candidates": [{"messages": [message]} for _ in range(candidates)]}
        return self.start("score_group", json.dumps(body).encode())

    async def close(self) -> None:
        async with asyncio.timeout(_WAIT_S):
            await self.handle.close()


async def open_session(
    runtime: Runtime,
    key: str = "scripted",
    *,
    ready: bool = True,
    secrets: dict[str, str] | None = None,
    **spec: Any,
) -> RuntimeSession:
    """A session on a task of that content; with ``ready`` after its setup."""
    session = RuntimeSession()
    request = OpenSession(key=key, task_spec=spec, secrets=secrets or {})
    session.handle = await runtime.open(request, session)
    if ready:
        error = await session.ready()
        if error is not None:
            raise error
    return session
