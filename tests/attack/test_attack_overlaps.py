"""Random overlaps of calls, scores and prompts: a session built again has the state that it had, or is gone.

In one process, with a real journal: a kill is a journal that gets nothing more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orsay import Environment, GroupCandidate, ImageBlock, TextBlock, tool
from orsay.errors import SessionGone
from orsay.runtimes.base import OpenSession
from orsay.sessions.call import Call
from orsay.sessions.session import Session

from tests.support.sessions import JournaledSessions, local_runtime

BOUND_S = 30.0
SERIAL = ("queued", "other")
WHAT = ("step", "step", "queued", "other", "alone", "refused", "prompt", "score")
SCORE = b'{"candidates":[{"messages":[{"role":"user","blocks":[]}]}]}'
Action = tuple[Literal["begin"], str] | tuple[Literal["end"], int]


class Turns(Environment):
    """Notes when each of its tools and hooks begins and ends, which is when the test says so."""

    replayable = True
    splits: ClassVar = {"train": [{"number": 0}]}
    made: ClassVar[list[Turns]] = []
    free: ClassVar = False  # nothing waits any more
    gates: ClassVar[dict[str, asyncio.Event]] = {}

    async def setup(self) -> None:
        self.noted: list[str] = []
        self.made.append(self)

    async def _turn(self, label: str) -> str:
        self.noted.append(f"+{label}")
        if not self.free:
            await self.gates[label].wait()
        self.noted.append(f"-{label}")
        return "done"

    async def get_prompt(self) -> list[TextBlock | ImageBlock]:
        return [TextBlock(text=await self._turn("prompt"))]

    @tool(concurrent=True)
    async def step(self, label: str) -> str:
        """Overlaps with itself."""
        return await self._turn(label)

    @tool
    async def queued(self, label: str) -> str:
        """One after the other."""
        return await self._turn(label)

    @tool
    async def other(self, label: str) -> str:
        """The same."""
        return await self._turn(label)

    @tool(exclusive=True)
    async def alone(self, label: str) -> str:
        """While nothing else is called."""
        return await self._turn(label)

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[float]:
        await self._turn("score")
        return [0.5 for _ in candidates]


@dataclass
class Made:
    """One thing that was asked of the session; times are numbers of actions."""

    what: str
    label: str
    began: int
    call: Call | None
    asking: asyncio.Task[bytes] | None = None
    ended: int | None = None

    @property
    def is_over(self) -> bool:
        if self.call is not None:
            return self.call.computed is not None
        assert self.asking is not None
        return self.asking.done()

    def overlaps(self, other: Made) -> bool:
        return (other.ended is None or self.began < other.ended) and (
            self.ended is None or other.began < self.ended
        )

    def is_parted_from(self, other: Made) -> bool:
        """The gate of the session lets one of them begin when the other has ended."""
        both = {self.what, other.what}
        if both & {"refused"}:
            return True
        if both & {"prompt", "score"}:
            return False
        return "alone" in both or (len(both) == 1 and self.what in SERIAL)


async def settle() -> None:
    """Have everything happen that waits for nothing outside: there are no threads."""
    for _ in range(60):
        await asyncio.sleep(0)


class Play:
    """A session as the actions say, and then what became of it."""

    def __init__(self, file: Path, name: str) -> None:
        self.file = file
        self.name = name
        self.all: list[Made] = []
        self.session: Session

    @property
    def open(self) -> list[Made]:
        return [each for each in self.all if each.ended is None]

    async def run(self, actions: Sequence[Action], *, cut: bool) -> None:
        Turns.free = False
        Turns.gates = {}
        first = JournaledSessions(local_runtime(Turns), self.file, self.name, setup_wait_s=BOUND_S)
        await first.start()
        info = first.runtime.environments[0]
        request = OpenSession(key=info.key, split="train", index=0)
        self.session = await first.sessions.create("a-session", "", info, request)
        handle = await self.session.ready()
        now = 0
        for now, (verb, what) in enumerate(actions, 1):
            if verb == "begin" and isinstance(what, str):
                self._begin(handle, what, now)
            elif self.open:
                Turns.gates[self.open[int(what) % len(self.open)].label].set()
            await self._look(now)
        for each in self.open:
            if not cut or each.what in ("prompt", "score"):
                now += 1
                Turns.gates[each.label].set()
                await self._look(now)
        if not cut:
            assert not self.open
        for each in self.open:
            assert each.call is not None
            await self.session.begin_stream(each.call)
        await asyncio.gather(*(each.asking for each in self.all if each.asking is not None and each.is_over))
        noted = list(Turns.made[-1].noted)
        waiting = [each.asking for each in self.all if each.asking is not None]
        await first.kill()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._build_again(noted)

    def _begin(self, handle: Any, what: str, now: int) -> None:
        if any(each.what == what for each in self.open if what in ("prompt", "score")):
            return  # one at a time: they have no label of their own
        label = what if what in ("prompt", "score") else f"{what}{now}"
        Turns.gates[label] = asyncio.Event()
        made = Made(what, label, now, None)
        if what == "prompt":
            made.asking = asyncio.ensure_future(self.session.ask(handle, "prompt"))
        elif what == "score":
            made.call = self.session.start_call(handle, "score_group", "score_group", SCORE, label + str(now))
        else:
            field = "nothing" if what == "refused" else "label"
            name = "queued" if what == "refused" else what
            body = f'{{"name":"{name}","input":{{"{field}":"{label}"}}}}'.encode()
            made.call = self.session.start_call(handle, "call", name, body, label)
        self.all.append(made)

    async def _look(self, now: int) -> None:
        await settle()
        for each in self.open:
            if each.asking is not None and "-prompt" in Turns.made[-1].noted[-4:]:
                await asyncio.wait([each.asking], timeout=0 if not each.is_over else None)
            if each.is_over or (each.asking is not None and Turns.gates["prompt"].is_set()):
                if each.asking is not None:
                    async with asyncio.timeout(BOUND_S):
                        await each.asking  # the journal has it
                each.ended = now

    @property
    def in_order(self) -> bool:
        """Nothing overlapped, but what had not ended with its like."""
        return all(
            one.is_parted_from(other)
            for place, one in enumerate(self.all)
            for other in self.all[:place]
            if one.overlaps(other) and not (one.ended is None and other.ended is None)
        )

    async def _build_again(self, noted: list[str]) -> None:
        Turns.free = True
        second = JournaledSessions(local_runtime(Turns), self.file, self.name, setup_wait_s=BOUND_S)
        await second.start()
        try:
            if not self.in_order:
                with pytest.raises(SessionGone, match="ran at the same time"):
                    await second.sessions.get("a-session", "").ready()
                return
            session = second.sessions.get("a-session", "")
            await session.ready()
            await settle()
            cut = {each.label for each in self.open}
            again = Turns.made[-1].noted
            assert [each for each in again if each[1:] not in cut] == [
                each for each in noted if each[1:] not in cut
            ]
            for each in self.all:
                if each.call is not None:
                    found = session.attach(each.call.task_id, each.call.operation)
                    assert found.computed is not None
        finally:
            await second.kill()


def go(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(work)


ACTIONS: st.SearchStrategy[list[Action]] = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(WHAT)),
        st.tuples(st.just("end"), st.integers(0, 5)),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overlaps") / "journal.db"


@pytest.mark.conformance("L7")
@pytest.mark.timeout(300)
@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, cut=st.booleans())
def test_whatever_overlapped_the_session_is_as_it_was_or_gone(
    journal: Path, actions: list[Action], cut: bool
) -> None:
    Turns.made.clear()
    go(Play(journal, str(uuid.uuid4())).run(actions, cut=cut))
