"""One episode: the player's seat in a game of the package, and the scripted opponent in the other.

Text in, text out. Rules, moves, penalties and rewards are the package's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .catalog import Game
from .opponents import OPPONENTS
from .options import options_for
from .package import PackageGame, make

__all__ = ["Match", "Outcome"]

TURN_LIMIT = "The limit of actions for this game is reached."


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an episode. ``cut_short``: by the limit of this environment, not by the package."""

    reward: float
    reason: str
    invalid_move: bool
    cut_short: bool = False


class Match:
    """Made and reset at once; ``act`` until there is an ``outcome``. For one caller at a time.

    actions: how many the player has sent. turns: how many of them were valid.
    """

    def __init__(self, game: Game, seed: int) -> None:
        """``seed`` decides puzzle, seat and opponent: the same actions lead to the same end."""
        self.game = game
        self.seed = seed
        self.actions = 0
        self.turns = 0
        self.outcome: Outcome | None = None
        chance = random.Random(f"{game.name}/{seed}/match")
        self.seat = chance.randrange(game.players)
        self._opponent = OPPONENTS[game.name](chance) if game.opponent else None
        self.play: PackageGame = make(
            game.name, players=game.players, seed=seed, options=options_for(game.name, seed)
        )
        self._let_the_opponent_act()
        self.opening = self._told()

    @property
    def over(self) -> bool:
        return self.outcome is not None

    def act(self, action: str) -> str:
        """Messages to the player after ``action``; sets ``outcome`` if that was the last.

        Raises ValueError after the end; a game's exceptions for text that it cannot parse pass through.
        """
        if self.over:
            raise ValueError("the game is over")
        self.actions += 1
        self.turns += self.play.step(action)
        self._let_the_opponent_act()
        text = self._told()
        if self.play.done:
            self.outcome = self._final()
        elif self.turns >= self.game.turns or self.actions >= self.game.calls:
            self.outcome = Outcome(
                self.play.progress() or 0.0, TURN_LIMIT, invalid_move=False, cut_short=True
            )
        return text

    def _let_the_opponent_act(self) -> None:
        while self._opponent is not None and not self.play.done and self.play.current_player != self.seat:
            self.play.step(self._opponent(self.play.bare))

    def _told(self) -> str:
        return "\n\n".join(filter(None, (self._line(*message) for message in self.play.read(self.seat))))

    def _line(self, sender: int, text: str, kind: str) -> str:
        """A message in the package's format for models, without the player's own actions."""
        if kind == "action":
            return "" if sender in (self.seat, -1) else f"[Player {sender}] {text.strip()}"
        return text.strip("\n")

    def _final(self) -> Outcome:
        rewards, info = self.play.rewards, self.play.info(self.seat)
        assert rewards is not None  # a game that is done has set them
        return Outcome(
            float(rewards[self.seat]), str(info.get("reason") or ""), invalid_move=bool(info["invalid_move"])
        )
