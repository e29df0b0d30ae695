"""Objects with the two methods of TRL-ENV, for the adapter `text`."""

from __future__ import annotations

import random


class Count:
    """Say the next number. Three right answers end it, and so does a wrong one."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.alive = False
        self.reward = 0.0

    def reset(self, seed: int) -> str:
        assert isinstance(seed, int)
        self.alive, self.reward = True, 0.0
        self.number = self.start + random.Random(seed).randrange(1000)
        self.end = self.number + 3
        return str(self.number)

    def step(self, action: str) -> str:
        right = action.strip() == str(self.number + 1)
        self.number += 1
        self.reward = 1.0 if right else -1.0
        self.alive = right and self.number < self.end
        return "right" if right else "wrong"


class Purse:
    """Keeps what was earned: `reward` is the total. The methods are async."""

    def __init__(self) -> None:
        self.closed = False

    async def reset(self, seed: int) -> str:
        self.alive, self.reward = True, 10.0
        return "earn"

    async def step(self, action: str) -> str:
        self.reward += float(action)
        return f"you have {self.reward:g}"


class Newer:
    """As TRL-ENV has it now: seeds are text, and the reward says that it is the last step's."""

    last_step_reward = 0.0
    alive = True

    def reset(self, seed: str) -> str:
        return f"seed {seed!r}"

    def step(self, action: str) -> str:
        self.last_step_reward = 0.25
        return action


class Dead(Newer):
    """Over before it began."""

    alive = False


class Broken(Newer):
    def step(self, action: str) -> str:
        raise ValueError("broken on purpose")


def make_count() -> Count:
    """A function that makes an object."""
    return Count(start=5000)


class NoStep:
    def reset(self, seed: int) -> str:
        return ""


one_for_all = Newer()
