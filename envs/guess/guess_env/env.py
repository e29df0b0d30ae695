"""The guess environment: find a hidden number; each wrong guess is answered with "higher" or "lower".

Rewards. A wrong guess earns its share of the information in the task: log(candidates before / candidates
after) / log(candidates at the start), times 0.1. Over an episode these add up to 0.1 at most, however
many guesses it takes, so there is nothing to farm. The right guess earns 1.0.
"""

from __future__ import annotations

import math
from typing import Annotated

from orsay import Environment, JSONObject, Split, TextBlock, ToolOutput, tool
from pydantic import Field

from .tasks import SPLITS, TASKS_PER_SPLIT, hidden_number, make_task, own_task

__all__ = ["GuessEnvironment"]

SHAPING = 0.1


class GuessEnvironment(Environment):
    """Find the hidden number within a limited number of guesses."""

    replayable = True

    @classmethod
    def list_splits(cls) -> list[str | Split]:
        return list(SPLITS)

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return TASKS_PER_SPLIT

    @classmethod
    def get_task(cls, split: str, index: int) -> JSONObject:
        return make_task(split, index)

    def __init__(self, task_spec: JSONObject | None = None, secrets: dict[str, str] | None = None) -> None:
        """Raises ValueError for a task that was not made here."""
        super().__init__(task_spec, secrets)
        task = own_task(self.task_spec)
        self.low, self.high = task["low"], task["high"]
        self.guesses_left = task["max_guesses"]
        self._total = math.log(self.high - self.low + 1)
        self._secret = hidden_number(task)
        self._candidates = (self.low, self.high)
        self._over = False

    def prompt(self) -> str:
        return (
            f"I am thinking of a whole number from {self.low} to {self.high}, both included. "
            f"Find it with the tool `guess`; "
            f"after each wrong guess I say whether my number is higher or lower. "
            f"You have {self.guesses_left} guesses."
        )

    @tool
    async def guess(
        self, number: Annotated[int, Field(description="The number you believe is hidden.")]
    ) -> ToolOutput:
        """Make one guess. A guess outside the range, or of a number already ruled out, is used up too."""
        if self._over:
            return self._answer("The game is over; no guess was made.", None)
        self.guesses_left -= 1
        if number == self._secret:
            self._over = True
            return self._answer(f"Correct, my number is {number}. You win.", 1.0)
        self._over = self.guesses_left == 0
        if not self.low <= number <= self.high:
            return self._answer(f"That is not from {self.low} to {self.high}.", 0.0)
        hint = "higher" if number < self._secret else "lower"
        gained = self._narrow(number)
        note = "" if gained else " You could have known."
        return self._answer(f"My number is {hint} than {number}.{note}", SHAPING * gained / self._total)

    def _narrow(self, number: int) -> float:
        """Rule out what ``number`` and its hint rule out, and return the logarithm of the ratio."""
        low, high = self._candidates
        if number < self._secret:
            self._candidates = max(low, number + 1), high
        else:
            self._candidates = low, min(high, number - 1)
        return math.log((high - low + 1) / (self._candidates[1] - self._candidates[0] + 1))

    def _answer(self, text: str, reward: float | None) -> ToolOutput:
        if reward != 1.0 and reward is not None:
            text += " No guesses left: you lose." if self._over else f" Guesses left: {self.guesses_left}."
        return ToolOutput(
            blocks=[TextBlock(text=text)],
            metadata={"guesses_left": self.guesses_left},
            reward=reward,
            finished=self._over,
        )
