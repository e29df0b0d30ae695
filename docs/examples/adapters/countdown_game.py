import random


class Countdown:
    """Name a number below the last; who says 1 has won."""

    def __init__(self, highest: int = 20) -> None:
        self.highest = highest

    def reset(self, seed: int) -> str:
        self.number = random.Random(seed).randint(5, self.highest)
        self.reward = 0.0
        self.alive = True
        return f"The number is {self.number}. Name a lower one, at most 3 below it."

    def step(self, action: str) -> str:
        said = int(action) if action.strip().isdecimal() else 0
        if not 1 <= self.number - said <= 3 or said < 1:
            self.alive = False
            return "That is not allowed. You have lost."
        self.number = said
        self.reward, self.alive = float(said == 1), said > 1
        return "You have won." if said == 1 else f"The number is {said}."
