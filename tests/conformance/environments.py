"""Environments for behaviours that need one made for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from orsay import Environment, ListToolsOutput, Split, TextBlock, ToolOutput, Toolset, ToolSpec, tool

__all__ = ["Busy", "Fragile", "Huge", "Named", "Odd"]


class _OneTask(Environment):
    splits: ClassVar = {"train": [{"id": "only"}]}

    def prompt(self) -> str:
        return f"task {dict(self.task_spec)}"


class Busy(_OneTask):
    """Tools that return which others they overlapped with."""

    async def setup(self) -> None:
        self.running: list[str] = []
        self.seen: dict[str, set[str]] = {}

    async def _work(self, name: str, seconds: float) -> str:
        beside = set(self.running)
        for other in self.running:
            self.seen[other].add(name)
        self.running.append(name)
        self.seen[name] = beside
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running.remove(name)
        return ",".join(sorted(self.seen.pop(name))) or "alone"

    @tool
    async def one(self, label: str, seconds: float = 0.2) -> str:
        return await self._work(f"one-{label}", seconds)

    @tool
    async def two(self, label: str, seconds: float = 0.2) -> str:
        return await self._work(f"two-{label}", seconds)

    @tool(concurrent=True)
    async def free(self, label: str, seconds: float = 0.2) -> str:
        return await self._work(f"free-{label}", seconds)

    @tool(exclusive=True)
    async def only(self, label: str, seconds: float = 0.2) -> str:
        return await self._work(f"only-{label}", seconds)

    @tool(concurrent=True)
    async def finish(self) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text="over")], reward=1.0, finished=True)

    @tool(concurrent=True, time_limit_s=0.3)
    async def hasty(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "in time"

    @tool(concurrent=True)
    async def note(self, path: str, seconds: float) -> str:
        """Write a line when done, and another when stopped before that."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            _append(path, "stopped")
            raise
        _append(path, "done")
        return "noted"

    @tool(concurrent=True, detached=True)
    async def note_detached(self, path: str, seconds: float) -> str:
        return await self.note(path, seconds)


def _append(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


class Fragile(_OneTask):
    """Fails, or takes its time, where its task says: ``fail`` names the place, ``log`` is a file of steps."""

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec, secrets)
        self._step("constructor")

    def _step(self, name: str) -> None:
        if "log" in self.task_spec:
            _append(self.task_spec["log"], name)
        if self.task_spec.get("fail") == name:
            raise ValueError(f"{name} broke")

    async def setup(self) -> None:
        self._step("setup")
        await asyncio.sleep(self.task_spec.get("setup_s", 0))

    async def teardown(self) -> None:
        self._step("teardown")

    def prompt(self) -> str:
        self._step("prompt")
        return "fragile"

    @tool
    def touch(self) -> str:
        self._step("touch")
        return "touched"


class Huge(_OneTask):
    """Counts and gets; listing is a mistake that it would notice."""

    @classmethod
    def list_splits(cls) -> Sequence[str | Split]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Any]:
        raise NotImplementedError("too many to list")

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return 10**12

    @classmethod
    def get_task(cls, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < 10**12:
            raise IndexError(index)
        return {"number": index}

    @tool
    def number(self) -> str:
        return str(self.task_spec["number"])


class _Box(Toolset):
    """Made once for each session, with its environment."""

    def __init__(self, env: Any) -> None:
        self.env, self.uses = env, 0

    @tool
    def beta(self) -> str:
        self.uses += 1
        return f"{self.env.task_spec['id']} {self.uses}"

    @tool
    def alpha_of_box(self) -> str:
        return "box"


class Named(_OneTask):
    """Goes by a name of its own, and has tools of every kind of visibility."""

    toolsets: ClassVar = [_Box]

    @classmethod
    def name(cls) -> str:
        return "Another-Name"

    @classmethod
    def list_splits(cls) -> Sequence[str | Split]:
        return ["train", "validation", "test", "held-out", Split(name="own", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Any]:
        return [{"id": f"{split}-task"}]

    @tool
    def zeta(self) -> str:
        """
        Says zeta.

        And no more.
        """
        return "zeta"

    @tool
    def alpha(self) -> str:
        return "alpha"

    @tool(shared=False)
    def hidden(self) -> str:
        return "found"

    def list_task_tools(self) -> ListToolsOutput:
        spec = ToolSpec(name="hidden", description="Only here.", input_schema=None)
        return ListToolsOutput(tools=[spec])


class Odd(_OneTask):
    """Tools that return what they should not, or too much of it."""

    @tool
    def nothing(self) -> str:
        return None  # type: ignore[return-value]  # the mistake that is meant

    @tool
    def reward(self, kind: str) -> ToolOutput:
        value = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "zero": 0.0}[kind]
        return ToolOutput(blocks=[TextBlock(text="?")], reward=value)

    @tool
    def metadata(self) -> ToolOutput:
        return ToolOutput(blocks=[], metadata={"nan": math.nan, "inf": math.inf, "fine": 1.5})

    @tool
    def large(self, size: int) -> str:
        return "x" * size

    @tool
    def fail(self, text: str) -> str:
        raise RuntimeError(text)

    @tool
    def give_up(self, kind: str) -> str:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "cancelled": asyncio.CancelledError}[kind](
            "out"
        )
