"""The textarena environment: games of the package ``textarena``, one tool, the package's own rewards.

Rewards. None until the game is over, then what the package gives the player: alone, usually the share of
the goal that was reached; against an opponent 1, 0 or -1. Nothing is scaled; the README lists the ranges.
"""

from __future__ import annotations

from typing import Annotated

from orsay import Environment, JSONObject, Split, TextBlock, ToolOutput, tool
from pydantic import Field

from .catalog import Game
from .match import Match
from .tasks import game_and_seed, make_task, num_tasks, splits

__all__ = ["TextArena"]

LONGEST_ACTION = 4_000
"""Characters. Below the number of digits at which Python refuses to read a number."""


class TextArena(Environment):
    """Play a game of text: a puzzle alone, or a duel against a scripted opponent."""

    setup_time_limit_s = (
        120  # the first episode of a worker imports the games; some puzzles take a second to invent
    )

    @classmethod
    def list_splits(cls) -> list[str | Split]:
        return splits()

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return num_tasks(split)

    @classmethod
    def get_task(cls, split: str, index: int) -> JSONObject:
        return make_task(split, index)

    def __init__(self, task_spec: JSONObject | None = None, secrets: dict[str, str] | None = None) -> None:
        """Raises ValueError for a game that is not offered, or a bad seed."""
        super().__init__(task_spec, secrets)
        self.game: Game
        self.game, self.seed = game_and_seed(self.task_spec)

    def setup(self) -> None:
        self.match = Match(self.game, self.seed)

    def prompt(self) -> str:
        return (
            f"{self.match.opening}\n\n"
            "Play with the tool `act`: one call for each of your turns, with the action as the rules above "
            "write it. You are told what happens."
        )

    @tool
    def act(
        self,
        action: Annotated[
            str, Field(max_length=LONGEST_ACTION, description="The action, in brackets as the rules ask.")
        ],
    ) -> ToolOutput:
        """Take your turn in the game. One invalid action is forgiven; a second one in a row ends the game."""
        match = self.match
        if match.over:
            return ToolOutput(blocks=[TextBlock(text="The game is over; nothing was done.")], finished=True)
        text = match.act(action)
        metadata: dict[str, object] = {"game": self.game.name, "turn": match.turns, "actions": match.actions}
        end = match.outcome
        if end is None:
            return ToolOutput(blocks=[TextBlock(text=text)], metadata=metadata)
        metadata |= {"reason": end.reason, "invalid_move": end.invalid_move, "cut_short": end.cut_short}
        lines = [text, f"The game is over. {end.reason}".strip()]
        return ToolOutput(
            blocks=[TextBlock(text="\n\n".join(line for line in lines if line))],
            metadata=metadata,
            reward=end.reward,
            finished=True,
        )
