"""The arithmetic environment: a word problem, a calculator to work with, and one graded answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from orsay import Environment, JSONObject, TextBlock, ToolOutput, terminal, tool

from .calculator import CalculatorError, calculate, show
from .grader import Grader
from .problems import SIZES, Problems, make_problem

__all__ = ["ArithmeticEnvironment"]

_SPLITS = {split: Problems(split) for split in SIZES}


class ArithmeticEnvironment(Environment):
    """Solve a word problem; the last message is the answer."""

    replayable = True

    splits: ClassVar = _SPLITS
    grader: ClassVar = Grader()

    def __init__(self, task_spec: JSONObject | None = None, secrets: dict[str, str] | None = None) -> None:
        """Raises ValueError for a task that was not made here: there would be nothing to grade with."""
        super().__init__(task_spec, secrets)
        split, index = _own_task(self.task_spec)
        self.problem = make_problem(split, index)

    def prompt(self) -> str:
        return (
            f"{self.problem.question}\n\n"
            "Work it out; the tool `calculator` helps as often as you like. Then reply without a tool call: "
            "that message is final. End it with a line of the form `Answer: 42`, a number without its unit. "
            "Give a decimal that does not end as a fraction, such as `Answer: 7/3`."
        )

    @tool
    async def calculator(self, expression: str) -> str:
        """Calculate exactly: numbers, + - * / // % ** and parentheses.

        Args:
            expression: What to calculate, such as (12 + 3.5) * 4.
        """
        try:
            return show(calculate(expression))
        except CalculatorError as error:
            return f"Error: {error}."

    @terminal
    @tool
    def answer(self, message: str) -> ToolOutput:
        """Give the final answer; ends the episode.

        Args:
            message: The last message, ending with a line such as "Answer: 42".
        """
        verdict = self.grader.grade(message, self.problem.answer)
        return ToolOutput(
            blocks=[TextBlock(text="Correct." if verdict.correct else "Not correct.")],
            metadata={"level": self.problem.level, "read": verdict.read},
            reward=1.0 if verdict.correct else 0.0,
            finished=True,
        )


def _own_task(task_spec: Mapping[str, Any]) -> tuple[str, int]:
    split, index = task_spec.get("split"), task_spec.get("index")
    if isinstance(split, str) and split in SIZES and type(index) is int and 0 <= index < SIZES[split]:
        task = _SPLITS[split][index]
        if dict(task_spec) == task:
            return split, index
    raise ValueError("not a task of the arithmetic environment; take one from its splits by index")
