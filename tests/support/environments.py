"""Environments that do what a test asks of them; loaded by file path, in worker processes too.

A task says how each hook behaves (``{"setup": "SystemExit"}``, see ``act``). What ran is written to the file
``log`` of the task, since a test cannot look into a worker process; code that must wait waits for
a file.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orsay import (
    Environment,
    GroupCandidate,
    ListToolsOutput,
    TextBlock,
    ToolOutput,
    Toolset,
    ToolSpec,
    terminal,
    tool,
)
from pydantic import BaseModel, field_validator

_WAIT_S = 30.0


class Mute(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise self


class Odd(BaseException):
    """Not an Exception."""


EXCEPTIONS: dict[str, BaseException | type[BaseException]] = {
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "CancelledError": asyncio.CancelledError(),
    "StopIteration": StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration(),
    "GeneratorExit": GeneratorExit(),
    "RecursionError": RecursionError,
    "MemoryError": MemoryError(),
    "ValueError": ValueError("no such door"),
    "ExceptionGroup": ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    "TimeoutError": TimeoutError("a time-out of the author's own"),
    "Odd": Odd("odd"),
    "Mute": Mute,
    "Surrogate": ValueError("half a letter: \ud800"),
}


def _fall() -> None:
    _fall()


def _pauses(gate: str) -> Iterator[float]:
    """Seconds to sleep until the gate opens, growing: hundreds of calls may wait for one."""
    end, pause = time.monotonic() + _WAIT_S, 0.005
    while not os.path.exists(gate) and time.monotonic() < end:
        yield pause
        pause = min(1.2 * pause, 0.05)


def act(how: str | None) -> None:
    """Return, raise, wait or die."""
    if not how:
        return
    what, _, rest = how.partition(":")
    if what == "wait":
        for pause in _pauses(rest):
            time.sleep(pause)
    elif what in ("sleep", "block"):  # on an event loop, the second alone blocks it
        time.sleep(float(rest))
    elif what == "spin":
        end = time.monotonic() + float(rest or _WAIT_S)
        while time.monotonic() < end:
            pass
    elif what == "hold_gil":
        ctypes.PyDLL(None).sleep(int(rest or 30))
    elif what == "RecursionError":
        _fall()
    elif what == "os._exit":
        os._exit(7)
    elif what == "segfault":
        ctypes.string_at(0)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "say":
        raise ValueError(rest)
    elif what == "eat":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        held = []
        while True:
            held.append(bytearray(64 << 20))
    else:
        error = EXCEPTIONS[what]
        raise error() if isinstance(error, type) else error


async def act_async(how: str | None) -> None:
    """The same on the event loop; only waiting does not block it."""
    what, _, rest = (how or "").partition(":")
    if what == "wait":
        for pause in _pauses(rest):
            await asyncio.sleep(pause)
    elif what == "sleep":
        await asyncio.sleep(float(rest))
    elif what == "stubborn":
        while not os.path.exists(rest):
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
    else:
        act(how)


class Tasks(Sequence[dict[str, Any]]):
    """A thousand tasks that are made when asked for."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < 1000:
            raise IndexError(index)
        return {"number": index}


class Strict(BaseModel):
    """An input whose validator is author code."""

    how: str

    @field_validator("how")
    @classmethod
    def _check(cls, value: str) -> str:
        act(value)
        return value


class Lamp(Toolset):
    """Tools of a toolset."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.lit = False
        act(env.task.get("toolset"))
        env.note("lamp")

    @tool
    def switch(self) -> str:
        """Switch the lamp."""
        self.lit = not self.lit
        return "on" if self.lit else "off"


class Scripted(Environment):
    """Does what its task says."""

    splits = {"train": [{"number": n} for n in range(3)], "many": Tasks(), "none": []}
    toolsets = (Lamp,)

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec, secrets)
        self.count = 0
        self.note("construct")
        act(self.task.get("constructor"))
        self.note("constructed")

    @property
    def trap(self) -> str:
        """Must never be read by name from outside."""
        self.note("trapped")
        return "trapped"

    def note(self, line: str) -> None:
        if "log" in self.task_spec:
            # No file object: an interrupt may leave it open, and the warning then keeps the episode alive.
            log = os.open(self.task_spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(log, f"{line}\n".encode())
            finally:
                os.close(log)

    def setup(self) -> Any:
        self.note("setup")
        act(self.task.get("setup"))
        self.note("ready")

    def teardown(self) -> Any:
        self.note("teardown")
        act(self.task.get("teardown"))
        self.note("gone")

    def prompt(self) -> Any:
        act(self.task.get("prompt"))
        return f"Task {self.task.get('number')}"

    def list_task_tools(self) -> Any:
        act(self.task.get("task_tools"))
        return ListToolsOutput(tools=[ToolSpec(name="hidden", description="Hidden.", input_schema=None)])

    def score_group(self, candidates: Sequence[GroupCandidate]) -> Any:
        act(self.task.get("score"))
        scores = self.task.get("scores")
        return [float(n) for n, _ in enumerate(candidates)] if scores is None else [float(s) for s in scores]

    # tools

    @tool
    def say(self, text: str) -> str:
        """Say it again."""
        return text

    @tool
    def say_later(self, text: str, seconds: float = 0.05) -> str:
        """Say it after a while."""
        time.sleep(seconds)
        return text

    @tool(shared=False)
    def hidden(self) -> str:
        """A tool that only the task lists."""
        return "found"

    @tool
    def add(self, by: int = 1) -> ToolOutput:
        """Count."""
        self.note("add")
        self.count += by
        return ToolOutput(blocks=[TextBlock(text=str(self.count))], reward=float(self.count))

    @tool
    async def add_later(self, gate: str) -> ToolOutput:
        """Count when the gate opens."""
        self.note("add")
        self.count += 1
        await act_async(f"wait:{gate}")
        return ToolOutput(blocks=[TextBlock(text=str(self.count))], reward=float(self.count))

    @tool
    def do(self, how: str) -> str:
        """Act on a thread."""
        act(how)
        return "done"

    @tool
    async def do_async(self, how: str) -> str:
        """Act on the event loop."""
        await act_async(how)
        return "done"

    @tool
    def check(self, params: Strict) -> ToolOutput:
        """Take an input that author code validates."""
        return ToolOutput(blocks=[TextBlock(text="passed")])

    @tool
    def pay(self, reward: str) -> ToolOutput:
        """Any reward."""
        return ToolOutput(blocks=[], reward=float(reward))

    @tool
    def fill(self, size: int) -> str:
        """A text of that size."""
        return "x" * size

    @tool
    def nothing(self) -> Any:
        """Return what is no result."""
        return None

    @tool
    def odd_metadata(self) -> ToolOutput:
        """Return what is no JSON."""
        return ToolOutput(blocks=[], metadata={"thing": object()})

    @tool
    def half_letter(self) -> str:
        """Return what is no UTF-8."""
        return "\ud800"

    @tool
    def where(self) -> str:
        """Process id of the place where the session lives."""
        return str(os.getpid())

    @tool
    def surroundings(self) -> str:
        """What author code can read of its process."""
        return repr((sys.argv, dict(os.environ)))

    @tool
    def hold(self, mebibytes: int) -> str:
        """Keep memory."""
        self.held = bytearray(os.urandom(1 << 20) * mebibytes)
        return str(os.getpid())

    @tool
    def census(self) -> str:
        """How many instances with this log are alive in this process."""
        gc.collect()
        alive = [each for each in gc.get_objects() if type(each) is type(self)]
        return str(sum(each.task_spec.get("log") == self.task_spec["log"] for each in alive))

    @tool
    def win(self) -> ToolOutput:
        """End the episode."""
        return ToolOutput(blocks=[TextBlock(text="won")], reward=1.0, finished=True)

    @tool
    def secret(self, how: str = "raise") -> str:
        """Give secrets away."""
        value = self.secrets["token"]
        if how == "raise":
            raise ValueError(f"cannot log in with {value}")
        return value

    # under a limit

    @tool(time_limit_s=0.3)
    async def limited_async(self, how: str = "sleep:30") -> str:
        """Too slow."""
        await act_async(how)
        return "done"

    @tool(time_limit_s=0.3)
    def limited(self, how: str = "spin") -> str:
        """Too slow."""
        try:
            act(how)
        finally:
            self.note("limited ended")
        return "done"

    @tool(time_limit_s=1)
    def limited_to_a_second(self, how: str) -> str:
        """Ends in time."""
        act(how)
        return "done"

    @tool(detached=True)
    async def detached(self, gate: str) -> str:
        """Goes on without its client."""
        self.note("detached+")
        await act_async(f"wait:{gate}")
        self.note("detached-")
        return "done"

    # what may overlap

    def _pass(self, name: str, gate: str) -> str:
        self.note(f"{name}+")
        act(f"wait:{gate}")
        self.note(f"{name}-")
        return name

    @tool
    def first(self, gate: str) -> str:
        """One of two plain tools."""
        return self._pass("first", gate)

    @tool
    async def second(self, gate: str) -> str:
        """The other one."""
        self.note("second+")
        try:
            await act_async(f"wait:{gate}")
        finally:
            self.note("second-")
        return "second"

    @tool(concurrent=True)
    def free(self, gate: str) -> str:
        """Overlaps with itself."""
        return self._pass("free", gate)

    @tool(exclusive=True)
    def alone(self, gate: str) -> str:
        """Runs alone."""
        return self._pass("alone", gate)

    @tool
    def end_with(self, gate: str) -> ToolOutput:
        """End the episode when the gate opens."""
        self._pass("end_with", gate)
        return ToolOutput(blocks=[TextBlock(text="over")], reward=1.0, finished=True)

    @terminal
    @tool
    def answer(self, text: str) -> ToolOutput:
        """The last word."""
        self.note("answer+")
        return ToolOutput(blocks=[TextBlock(text=text)], reward=0.5, finished=True)


class AsyncScripted(Scripted):
    """The same with asynchronous hooks."""

    async def setup(self) -> None:
        self.note("setup")
        await act_async(self.task.get("setup"))
        self.note("ready")

    async def teardown(self) -> None:
        self.note("teardown")
        await act_async(self.task.get("teardown"))
        self.note("gone")

    async def prompt(self) -> str:
        await act_async(self.task.get("prompt"))
        return f"Task {self.task.get('number')}"

    async def list_task_tools(self) -> ListToolsOutput:
        await act_async(self.task.get("task_tools"))
        return ListToolsOutput(tools=[])

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[float]:
        await act_async(self.task.get("score"))
        return [1.0 for _ in candidates]


class Plain(Environment):
    """No hooks at all."""

    splits = {"train": [{"target": "hello"}]}

    def prompt(self) -> str:
        return f"Say {self.task['target']}."

    @tool
    def echo(self, text: str) -> ToolOutput:
        """Say it."""
        won = text == self.task["target"]
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(won), finished=won)


class BadTasks(Environment):
    """Its tasks fail as the name of the split says."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return [*EXCEPTIONS, "train"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        if split == "train":
            return ["no object"]
        act(split)
        return []

    def prompt(self) -> str:
        return ""

    @tool
    def noop(self) -> str:
        """Do nothing."""
        return ""


FILE = str(Path(__file__))
TARGETS = [f"{FILE}:{cls.__name__}" for cls in (Scripted, AsyncScripted, Plain, BadTasks)]
