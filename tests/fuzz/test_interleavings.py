"""Random interleavings of what clients do to sessions, against a model, on the ``local`` runtime."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from orsay import Environment, ToolOutput, tool
from orsay.errors import Faulted, KeyConflict, SessionConflict, SessionGone, UnknownSession
from orsay.runtimes.base import OpenSession
from orsay.sessions.call import Call
from orsay.sessions.timers import Delay

from tests.support.sessions import local_runtime, make_sessions

SIDS = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from(["", "", "", "thief"])


class Counted(Environment):
    """Counts, and is counted."""

    splits = {"train": [{"n": 0}, {"n": 1}]}
    built: list[Counted]

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec, secrets)
        self.count = 0
        self.torn_down = 0
        self.gates: dict[str, asyncio.Event] = {}
        type(self).built.append(self)

    async def setup(self) -> None:
        await asyncio.sleep(0)
        if self.task["n"] == 1:
            raise ValueError("no setup")

    async def teardown(self) -> None:
        await asyncio.sleep(0)
        self.torn_down += 1

    def prompt(self) -> str:
        return ""

    @tool
    async def add(self) -> str:
        """Count."""
        self.count += 1
        return str(self.count)

    @tool(concurrent=True)
    async def wait(self) -> str:
        """Never ends by itself."""
        self.count += 1
        await asyncio.Event().wait()
        return "never"

    @tool
    async def fail(self) -> str:
        """Raise."""
        self.count += 1
        raise ValueError("no")

    @tool
    async def win(self) -> ToolOutput:
        """End the episode."""
        self.count += 1
        return ToolOutput(blocks=[], reward=1.0, finished=True)


class Known:
    """What the model knows of a live session."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.finished = False
        self.runs = 0
        self.waiting: list[Call] = []
        self.ended: list[Call] = []
        self.keys: dict[str, Call] = {}


class Interleaving(RuleBasedStateMachine):
    """Each rule is one request; the loop runs on between them."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.live: dict[str, Known] = {}
        self.gone: set[tuple[str, str]] = set()  # sid and owner
        Counted.built = []
        self.go(self._start())

    def go(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(10):
                return await work

        return self.runner.run(bounded())

    async def _start(self) -> None:
        self.delay = Delay(5.0)
        self.runtime = local_runtime(Counted, threads=50)
        self.sessions = make_sessions(self.runtime)
        await self.runtime.start()

    def teardown(self) -> None:
        async def end() -> None:
            await self.sessions.close_all()
            assert len(self.sessions) == 0 and self.sessions.totals.in_flight == 0
            assert self.sessions.totals.stored_bytes == 0
            assert not self.sessions.totals.abandoned
            assert all(each.torn_down == 1 for each in Counted.built)
            await self.runtime.stop()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not others, others

        try:
            self.go(end())
        finally:
            self.runner.close()

    def _find(self, sid: str, owner: str) -> Any:
        """The session, or None where the model says there must be none."""
        known = self.live.get(sid) if owner == "" else None
        if known is not None:
            return self.sessions.get(sid, owner)
        expected = SessionGone if (sid, owner) in self.gone else UnknownSession
        with pytest.raises(expected):
            self.sessions.get(sid, owner)
        return None

    @rule(sid=SIDS, owner=OWNERS, number=st.sampled_from([0, 0, 0, 1]), times=st.integers(1, 3))
    def create(self, sid: str, owner: str, number: int, times: int) -> None:
        async def work() -> None:
            request = OpenSession(key="counted", split="train", index=number)
            info = self.runtime.environments[0]
            creating = [self.sessions.create(sid, owner, info, request) for _ in range(times)]
            found = await asyncio.gather(*creating, return_exceptions=True)
            known = self.live.get(sid) if owner == "" else None
            if known is not None and known.number != number:
                assert all(isinstance(each, SessionConflict) for each in found)
                return
            if owner != "":
                await self.sessions.delete(sid, owner)  # not part of the model
                self.gone.add((sid, owner))
                return
            assert len({id(each) for each in found}) == 1
            if known is None:
                self.live[sid] = Known(number)

        self.go(work())

    @rule(sid=SIDS, owner=OWNERS, times=st.integers(1, 3))
    def delete(self, sid: str, owner: str, times: int) -> None:
        async def work() -> None:
            await asyncio.gather(*(self.sessions.delete(sid, owner) for _ in range(times)))

        self.go(work())
        known = self.live.pop(sid, None) if owner == "" else None
        if known is not None:
            self.gone.add((sid, owner))
            for call in known.waiting:
                assert call.outcome is not None and call.outcome.fault is not None
                assert call.outcome.fault.fault == "cancelled"

    @rule(
        sid=SIDS,
        owner=OWNERS,
        name=st.sampled_from(["add", "wait", "fail", "win", "nope"]),
        key=st.sampled_from([None, "k1", "k2"]),
    )
    def call(self, sid: str, owner: str, name: str, key: str | None) -> None:
        async def work() -> None:
            session = self._find(sid, owner)
            if session is None:
                return
            known = self.live[sid]
            if known.number == 1:
                with pytest.raises(Faulted, match="no setup"):
                    await session.ready()
                return
            handle = await session.ready()
            body = json.dumps({"name": name, "input": {}}).encode()
            if key is not None and key in known.keys and known.keys[key].name != name:
                with pytest.raises(KeyConflict, match="belongs to another request"):
                    session.start_call(handle, "call", name, body, key)
                return
            call = session.start_call(handle, "call", name, body, key)
            if key is not None and key in known.keys:
                assert call is known.keys[key], "a key is good for one call"
                return
            if key is not None:
                known.keys[key] = call
            for _ in range(3):
                await asyncio.sleep(0)
            if name == "wait" and not known.finished:
                known.waiting.append(call)
                known.runs += 1
                assert call.outcome is None
                return
            assert await call.wait(self.delay)
            known.ended.append(call)
            assert call.outcome is not None
            if name == "nope":
                assert b"not_found" in call.outcome.wire
            elif known.finished:
                assert b"episode_finished" in call.outcome.wire
            else:
                known.runs += 1
                assert (call.outcome.fault is not None) == (name == "fail")
                known.finished = call.outcome.finished

        self.go(work())

    @precondition(lambda self: any(known.ended for known in self.live.values()))
    @rule(pick=st.integers(0, 20), asking=SIDS)
    def attach(self, pick: int, asking: str) -> None:
        calls = [(sid, call) for sid, known in self.live.items() for call in known.ended]
        sid, call = calls[pick % len(calls)]
        if asking not in self.live:
            return
        session = self.sessions.get(asking, "")
        if asking == sid:
            assert session.attach(call.task_id, "call") is call
        else:
            with pytest.raises(Faulted, match="unknown task_id"):
                session.attach(call.task_id, "call")

    @precondition(lambda self: any(known.waiting for known in self.live.values()))
    @rule(pick=st.integers(0, 20))
    def stop(self, pick: int) -> None:
        waiting = [known for known in self.live.values() if known.waiting]
        call = waiting[pick % len(waiting)].waiting.pop()

        async def work() -> None:
            assert call.stop is not None
            call.stop()
            assert await call.wait(self.delay)
            assert call.outcome is not None and call.outcome.fault is not None

        self.go(work())

    @invariant()
    def tables_match_the_model(self) -> None:
        assert len(self.sessions) == len(self.live)
        assert self.sessions.totals.in_flight == sum(len(known.waiting) for known in self.live.values())
        alive = [each for each in Counted.built if not each.torn_down]
        assert len(alive) == len(self.live)
        assert all(each.torn_down <= 1 for each in Counted.built)
        assert sum(each.count for each in alive) == sum(known.runs for known in self.live.values())


TestInterleavings = Interleaving.TestCase
TestInterleavings.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # explain traces lines, which hangs Python 3.11.7
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestInterleavings = pytest.mark.conformance("D2", "D4", "D5", "L1", "L2", "L4", "S1")(TestInterleavings)
