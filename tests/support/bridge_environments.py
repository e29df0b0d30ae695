"""Environments that the bridge's tests play. What happens is written to the file that BRIDGE_DIARY names."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import uuid
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal

from orsay import Environment, GroupScore, ImageBlock, TextBlock, ToolOutput, Toolset, terminal, tool
from pydantic import BaseModel, Field

WORDS = ("apple", "pear", "plum", "fig", "cherry", "lime", "quince", "grape")


def note(event: str, **fields: Any) -> None:
    """Add a line to the diary, which is how a test sees the server's side."""
    diary = os.environ.get("BRIDGE_DIARY")
    if diary:
        with Path(diary).open("a") as file:
            file.write(json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n")


class Busy:
    """How many tool calls run at the same time in this worker, and the most there have been."""

    now = 0
    most = 0


class Words(Environment):
    """Say the right word: 1.0, and the episode is over. The other tools help a test to look inside."""

    splits: ClassVar = {
        "train": [{"id": f"word-{i}", "word": word, "level": i % 3} for i, word in enumerate(WORDS)],
        "test": [{"id": f"test-{i}", "word": word, "level": 0} for i, word in enumerate(WORDS[:3])],
        "empty": [],
    }

    def setup(self) -> None:
        self.key = uuid.uuid4().hex
        self.heard: list[str] = []
        note("setup", key=self.key, id=self.task_spec.get("id"))

    def teardown(self) -> None:
        note("teardown", key=self.key)

    def prompt(self) -> str:
        return f"Say the word: {self.task_spec['word']}."

    @tool
    def say(self, word: str) -> ToolOutput:
        """Say a word.

        Args:
            word: The word to say.
        """
        note("call", key=self.key, tool="say", word=word)
        self.heard.append(word)
        right = word == self.task_spec["word"]
        return ToolOutput(
            blocks=[TextBlock(text="right" if right else f"wrong, heard {self.heard}")],
            reward=float(right),
            finished=right,
            metadata={"rewards": {"accuracy": float(right), "brevity": 0.25}},
        )

    @tool
    def points(self, number: float) -> ToolOutput:
        """Give that reward, without an end."""
        note("call", key=self.key, tool="points", number=number)
        return ToolOutput(blocks=[TextBlock(text=f"{number} points")], reward=number)

    @tool
    def look(self, where: str = "here") -> str:
        note("call", key=self.key, tool="look", where=where)
        return f"{where}: {self.task_spec['word']}"

    @tool
    async def together(self, seconds: float = 0.05) -> ToolOutput:
        """Tell the most calls that ran at the same time so far."""
        note("call", key=self.key, tool="together")
        Busy.now += 1
        Busy.most = max(Busy.most, Busy.now)
        await asyncio.sleep(seconds)
        Busy.now -= 1
        return ToolOutput(blocks=[TextBlock(text=f"{Busy.most} at a time")], metadata={"most": Busy.most})

    @tool
    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    @tool
    def pid(self) -> ToolOutput:
        """The worker's process, for the test alone: a model reads the same in every process."""
        return ToolOutput(blocks=[TextBlock(text="some number")], metadata={"pid": os.getpid()})

    @tool
    def die_once(self, marker: str) -> str:
        """Kill the worker at the first call with this marker file, and answer at the next."""
        path = Path(marker)
        if not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @tool
    def die(self) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    @tool
    def fail(self) -> str:
        raise ValueError("the tool broke")

    @tool
    def secret(self) -> str:
        note("secret", given=dict(self.secrets))
        return f"{len(self.secrets)} secrets"


class Noted(Words):
    """Notes its construction, which is over when a client has its session, unlike setup."""

    def __init__(self, task_spec: dict[str, Any], secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        note("constructed", id=task_spec.get("id"))


class Fickle(Words):
    """Answers otherwise in each session, so that a lost one cannot be played again."""

    @tool
    def look(self, where: str = "here") -> str:
        return f"{where}: {self.key}"


class Unseeded(Words):
    """Another prompt in each session, unless the task has a seed."""

    def prompt(self) -> str:
        return f"Number {self.task_spec.get('seed', uuid.uuid4().int)}: say {self.task_spec['word']}."


class Broken(Words):
    """Breaks at the place that its task names."""

    splits: ClassVar = {
        "train": [{"id": place, "word": "x", "place": place} for place in ("setup", "prompt", "nowhere")]
    }

    def setup(self) -> None:
        super().setup()
        if self.task_spec["place"] == "setup":
            raise RuntimeError("setup broke")

    def prompt(self) -> str:
        if self.task_spec["place"] == "prompt":
            raise RuntimeError("prompt broke")
        return super().prompt()


class Judged(Environment):
    """A plain message is the answer; rollouts of a task are compared by the length of their last words."""

    splits: ClassVar = {"train": [{"answer": "yes"}, {"answer": "no"}], "test": [{"answer": "yes"}]}

    def prompt(self) -> str:
        return f"The answer is {self.task_spec['answer']}."

    @tool
    def hint(self) -> str:
        return str(self.task_spec["answer"])

    @terminal
    @tool
    def answer(self, text: str) -> ToolOutput:
        """Hand in the answer."""
        right = text.strip() == self.task_spec["answer"]
        return ToolOutput(blocks=[TextBlock(text="graded")], reward=float(right), finished=True)

    def score_group(self, candidates: Sequence[Any]) -> Sequence[Any]:
        texts = [
            "".join(block.text for block in candidate.messages[-1].blocks if block.type == "text")
            for candidate in candidates
        ]
        note("group", texts=texts, roles=[[m.role for m in c.messages] for c in candidates])
        if any("uncomparable" in text for text in texts):
            raise ValueError("these cannot be compared")
        return [GroupScore(reward=float(len(text))) for text in texts]


class Numbered(Environment):
    """Takes a number, another for each rollout, and gives a reward that says which task and number it was."""

    splits: ClassVar = {
        "train": [{"task": i} for i in range(4)],
        "test": [{"task": 100 + i} for i in range(2)],
    }

    def prompt(self) -> str:
        return f"Task {self.task_spec['task']}: give your number."

    @tool
    def give(self, number: int) -> ToolOutput:
        """Even numbers end the episode."""
        reward = self.task_spec["task"] + (number % 10) / 16
        return ToolOutput(blocks=[TextBlock(text="taken")], reward=reward, finished=number % 2 == 0)

    @tool
    def fail(self, number: int) -> str:
        raise ValueError(f"number {number} fails")

    def score_group(self, candidates: Sequence[Any]) -> Sequence[Any]:
        """Each gets the sum of the others' numbers, in 64ths, and how many they are, in thousands."""
        numbers = [
            next(block.input["number"] for block in candidate.messages[1].blocks if block.type == "tool_call")
            for candidate in candidates
        ]
        note("numbers", task=self.task_spec["task"], numbers=numbers)
        return [GroupScore(reward=1000.0 * len(numbers) + (sum(numbers) - number) / 64) for number in numbers]


class Single(Numbered):
    """One task, which a mixture repeats."""

    splits: ClassVar = {"train": [{"task": 50}], "test": [{"task": 150}]}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    x: int = Field(ge=0, le=9, description="From the left.")
    y: int = Field(default=0, ge=0)


class Drawing(BaseModel):
    """All kinds of parameters."""

    colour: Colour
    mode: Literal["fast", "slow"] = "fast"
    points: list[Point] = Field(min_length=1, description="Where, in order.")
    names: dict[str, int] | None = None
    width: float = Field(default=1.5, gt=0, multiple_of=0.5)
    label: str | None = Field(default=None, max_length=20, pattern="^[a-z]*$")


class Schemas(Environment):
    """Tools with rich schemas; each says what it got."""

    splits: ClassVar = {"train": [{"id": "only"}]}

    def prompt(self) -> str:
        return "Draw."

    @tool
    def draw(self, params: Drawing) -> str:
        """Draw points."""
        note("call", tool="draw", given=sorted(params.model_fields_set))
        return params.model_dump_json(exclude_unset=True)

    @tool
    def short(self, first: int, second: list[Literal["a", "b"]], third: str = "c") -> str:
        """Short spelling."""
        return json.dumps([first, second, third])

    @tool
    def nothing(self) -> str:
        return "no parameters"


def _odd(name: str) -> Any:
    def method(self: Any, text: str = "") -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=f"{name} got {text!r}")], reward=0.5)

    method.__doc__ = f"Known as {name}."
    return tool(method)


ODD_NAMES = (
    "reset",
    "get_reward",
    "do-it",
    "a.b c",
    "a_b_c",
    "a b.c",
    "_private",
    "__init__like__",
    "class",
    "reward",
    "rewards",
    "metadata",
    "finished",
    "last_output",
    "episode",
    "spec",
    "scored_by_function",
    "tâche",
    "9lives",
    "x" * 90,
    "x" * 89 + "y",
)

_OddTools = type("_OddTools", (Toolset,), {name: _odd(name) for name in ODD_NAMES})


class Odd(Environment):
    """Tools with names that a trainer takes for something else, or cannot say."""

    splits: ClassVar = {"train": [{"id": "only"}]}
    toolsets: ClassVar = [_OddTools]

    def prompt(self) -> str:
        return "Odd."


def pixel(colour: tuple[int, int, int]) -> str:
    """A PNG of one colour, in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (2, 3), colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


class Pictures(Environment):
    """Pictures in the prompt and in results, one of them no picture at all."""

    splits: ClassVar = {"train": [{"id": "good"}, {"id": "bad"}]}

    def prompt(self) -> list[Any]:
        data = pixel((255, 0, 0)) if self.task_spec["id"] == "good" else base64.b64encode(b"no").decode()
        return [
            TextBlock(text="before"),
            ImageBlock(data=data, mimeType="image/png"),
            TextBlock(text="after"),
        ]

    @tool
    def show(self, good: bool = True) -> ToolOutput:
        data = pixel((0, 0, 255)) if good else base64.b64encode(b"no").decode()
        return ToolOutput(
            blocks=[ImageBlock(data=data, mimeType="image/png"), TextBlock(text="blue")], reward=1.0
        )


class Mixed(Environment):
    """Tasks whose fields have no common type, or names that a trainer takes for something else."""

    splits: ClassVar = {
        "train": [
            {"value": 1, "nested": {"a": 1}, "rows": [1, 2], "huge": 2**80, "prompt": "no", "images": "no"},
            {"value": "two", "nested": {"b": [1]}, "rows": [], "extra": True, "completions": 3, "tags": {}},
            {"value": None, "nested": None, "rows": None, "prompts": "p", "image": "i", "environments": 5},
        ]
    }

    def prompt(self) -> str:
        return f"value {self.task_spec['value']}"

    @tool
    def look(self) -> str:
        return "seen"


class Endless(Environment):
    """A thousand million tasks, which nobody may list."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        raise NotImplementedError("too many")

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return 10**9

    @classmethod
    def get_task(cls, split: str, index: int) -> dict[str, Any]:
        note("get_task", index=index)
        if not 0 <= index < 10**9:
            raise IndexError(index)
        return {"number": index}

    def prompt(self) -> str:
        return f"number {self.task_spec['number']}"

    @tool
    def number(self) -> str:
        return str(self.task_spec["number"])
