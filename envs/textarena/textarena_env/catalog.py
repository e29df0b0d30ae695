"""Catalog of the games, with their players, rewards and limits. Imports no game.

The names are those of the package's registry. README.md has this catalog as a table, and the reasons for
missing games.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GAMES", "GAMES_BY_NAME", "Game"]


@dataclass(frozen=True, slots=True)
class Game:
    """One game of the package, as registered.

    goal: what wins it, in a few words.
    turns: valid actions after which an episode is over at the latest. ``our_limit`` says who ends it:
        the package, or, where it knows no limit, this environment.
    lowest, highest: rewards that can come at the end.
    opponent: who plays the other seat; empty for games of one player.
    """

    name: str
    goal: str
    turns: int
    lowest: float = 0.0
    highest: float = 1.0
    opponent: str = ""
    our_limit: bool = False

    @property
    def players(self) -> int:
        return 2 if self.opponent else 1

    @property
    def calls(self) -> int:
        """Maximum number of actions of an episode: one invalid action is forgiven per turn."""
        return 2 * self.turns + 2


def _duel(name: str, goal: str, turns: int, opponent: str, *, our_limit: bool = False) -> Game:
    """A game of two: 1 for the winner, -1 for the loser, 0 for both after a draw."""
    return Game(name, goal, turns, lowest=-1.0, opponent=opponent, our_limit=our_limit)


GAMES: tuple[Game, ...] = (
    Game("2048-v0-ultra-easy", "merge tiles up to 32", 130, our_limit=True),
    Game("2048-v0-super-easy", "merge tiles up to 128", 500, our_limit=True),
    Game("2048-v0", "merge tiles up to 2048", 2000, our_limit=True),
    Game("Blackjack-v0", "win 5 hands against the dealer", 100),
    Game("Blackjack-v0-long", "win 15 hands against the dealer", 300),
    Game("Countdown-v0", "reach a number with six others", 5),
    Game("Crosswords-v0", "fill in three words", 31),
    Game("Crosswords-v0-hardcore", "fill in three rarer words", 31),
    Game("Cryptarithm-v0", "find the digits of a sum in letters", 101),
    Game("FrozenLake-v0", "cross 4x4 cells with 3 holes", 101),
    Game("FrozenLake-v0-random", "the same from any corner", 101),
    Game("FrozenLake-v0-hardcore", "cross 5x5 cells with 6 holes", 101),
    Game("GuessTheNumber-v0", "find a number from 1 to 20", 11),
    Game("GuessTheNumber-v0-hardcore", "find a number from 1 to 50", 11),
    Game("LightsOut-v0", "switch 25 lights off", 20, lowest=-24.0),
    Game("LogicPuzzle-v0", "fill in grids from clues", 31),
    Game("LogicPuzzle-v0-hard", "fill in grids from harder clues", 31),
    Game("Mastermind-v0", "find 4 of 6 digits", 21),
    Game("Mastermind-v0-hard", "find 4 of 8 digits", 31),
    Game("Mastermind-v0-extreme", "find 6 of 12 numbers, repeats allowed", 51),
    Game("Minesweeper-v0-small", "clear 5x5 cells with 5 mines", 101),
    Game("Minesweeper-v0", "clear 8x8 cells with 10 mines", 101),
    Game("Minesweeper-v0-medium", "clear 10x10 cells with 20 mines", 101),
    Game("PegJump-v0", "leave one of 14 pegs", 13),
    Game("RushHour-v0", "drive the red car out of the jam", 100, our_limit=True),
    Game("Secretary-v0", "accept the highest of 5 values", 5, lowest=-1.0),
    Game("Secretary-v0-long", "accept the highest of 10 values", 10, lowest=-1.0),
    Game("Slitherlink-v0", "draw a loop on 4x4 cells", 201),
    Game("Sokoban-v0", "push 3 boxes onto goals", 31),
    Game("Sudoku-v0-very-easy", "fill in at most 6 cells", 101),
    Game("Sudoku-v0", "fill in at most 21 cells", 101),
    Game("Sudoku-v0-medium", "fill in at most 41 cells", 101),
    Game("ThreeCardMonte-v0", "follow a ball under three cups", 1),
    Game("TowerOfHanoi-v0", "move 3 disks", 15),
    Game("TowerOfHanoi-v0-medium", "move 4 disks", 31),
    Game("TowerOfHanoi-v0-hard", "move 5 disks", 63),
    _duel("Chopsticks-v0", "put out both hands", 21, "random, kills a hand when it can"),
    _duel("ConnectFour-v0", "four in a row", 21, "wins or blocks in one move, else random"),
    _duel("GameOfPureStrategy-v0", "win prizes with 13 cards", 13, "bids near the prize"),
    _duel("IteratedMatchingPennies-v0", "match, or not, 10 times", 10, "random, leans to one side"),
    _duel("IteratedRockPaperScissors-v0", "win most of 9 rounds", 9, "random, leans to one hand"),
    _duel("KuhnPoker-v0-short", "win chips in 5 rounds", 10, "bets kings, folds jacks, bluffs at times"),
    _duel("Nim-v0", "take the last object", 20, "perfect every other move, else random"),
    _duel("Othello-v0-small", "own most of 6x6 cells", 32, "takes corners, else random"),
    _duel("PigDice-v0-50", "roll and hold up to 50 points", 60, "holds at 20", our_limit=True),
    _duel("TicTacToe-v0", "three in a row", 5, "wins or blocks in one move, else random"),
    _duel("WildTicTacToe-v0", "three of either mark", 5, "wins in one move, else random"),
)

GAMES_BY_NAME = {game.name: game for game in GAMES}
