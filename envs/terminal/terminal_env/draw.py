"""Random choices of a task: the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Draw"]

T = TypeVar("T")

_NOUNS = (  # noqa: SIM905  # a list would have a line for each word
    "acorn anchor apple arrow autumn badge basil beacon birch blossom bottle bridge bronze bucket butter "
    "cactus camera candle canyon carbon castle cedar cherry cinder cliff clover cobalt comet copper coral "
    "cotton crane crystal dagger daisy delta desert diamond dolphin dragon drum eagle echo ember engine "
    "falcon feather fern field flame flint forest fossil galaxy garden garnet glacier grove hammer harbor "
    "hazel helmet heron hollow honey island ivory jasmine jungle kettle lagoon lantern lemon lilac linen "
    "maple marble meadow mirror mosaic mountain nectar needle oasis ocean olive onyx orbit orchid otter "
    "pebble pepper pigeon pillar planet plum pocket prairie quartz rabbit raven ribbon river rocket "
    "saddle saffron salmon sapphire shadow silver sparrow spruce summit sunset thistle thunder timber "
    "tulip valley velvet violet walnut whistle willow winter zephyr zinc"
).split()
_ADJECTIVES = (  # noqa: SIM905  # as above
    "active blue bright calm clear cold deep dry early eager fair fast fine firm fresh gentle gold grand "
    "green grey high keen kind late light long low loud mild neat new old pale plain prime proud quick "
    "quiet rare red round sharp short slow small soft solid still strong swift tall warm wide wild young"
).split()


class Draw:
    """Choices of one task. ``level`` is 1, 2 or 3, and sizes grow with it."""

    def __init__(self, seed: str, level: int) -> None:
        self.level = level
        self.random = random.Random(seed)
        self._nouns = self.random.sample(_NOUNS, len(_NOUNS))
        self._given: set[str] = set()

    def word(self) -> str:
        """A noun, another one each time."""
        return self._nouns.pop()

    def words(self, count: int) -> list[str]:
        return [self.word() for _ in range(count)]

    def name(self) -> str:
        """Two words with a hyphen, other ones each time."""
        while True:
            made = f"{self.random.choice(_ADJECTIVES)}-{self.random.choice(_NOUNS)}"
            if made not in self._given:
                self._given.add(made)
                return made

    def names(self, count: int) -> list[str]:
        return [self.name() for _ in range(count)]

    def number(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return self.random.randint(low, high)

    def size(self, low: int, high: int) -> int:
        """A number of things, more of them at higher levels."""
        return self.random.randint(low, high) * self.level

    def choice(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self.random.sample(options, count)

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return self.sample(options, len(options))

    def code(self) -> str:
        """Eight hexadecimal digits."""
        return f"{self.random.getrandbits(32):08x}"

    def line(self, words: int = 6) -> str:
        """Words that hold no meaning, and end with a code."""
        return " ".join([*(self.random.choice(_NOUNS) for _ in range(words)), self.code()])

    def text(self, lines: int = 3) -> str:
        return "".join(f"{self.line()}\n" for _ in range(lines))
