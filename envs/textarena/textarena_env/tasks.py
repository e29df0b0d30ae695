"""Tasks by index: a game and a seed. ``train`` and ``test`` take the games in turn; each game has both too.

The seeds for testing start a billion after those for training, so that no split holds a task of another kind.
"""

from __future__ import annotations

from typing import Literal

from orsay import JSONObject, Split

from .catalog import GAMES, GAMES_BY_NAME, Game

__all__ = ["TEST_TASKS", "TRAIN_TASKS", "game_and_seed", "make_task", "num_tasks", "splits"]

TRAIN_TASKS = 10_000
"""Seeds of each game for training."""
TEST_TASKS = 1_000
"""Seeds of each game for testing."""
FIRST_TEST_SEED = 1_000_000_000
HIGHEST_SEED = 2**32 - 1
"""Bound on seeds that every generator of the games accepts."""

Kind = Literal["train", "test"]
_COUNTS: dict[Kind, int] = {"train": TRAIN_TASKS, "test": TEST_TASKS}
_FIRST: dict[Kind, int] = {"train": 0, "test": FIRST_TEST_SEED}


def splits() -> list[str | Split]:
    """``train`` and ``test``, then the two of each game: ``Mastermind-v0-train``, ``Mastermind-v0-test``."""
    found: list[str | Split] = ["train", "test"]
    for game in GAMES:
        found.append(Split(name=f"{game.name}-train", type="train"))
        found.append(Split(name=f"{game.name}-test", type="test"))
    return found


def num_tasks(split: str) -> int:
    """Number of tasks in a split. Raises ValueError for an unknown one."""
    kind, games = _parts(split)
    return _COUNTS[kind] * len(games)


def make_task(split: str, index: int) -> JSONObject:
    """The task at ``index``, negative from the end. Raises IndexError, or ValueError for the split."""
    kind, games = _parts(split)
    total = _COUNTS[kind] * len(games)
    if not -total <= index < total:
        raise IndexError(f"no task {index} in {split}; there are {total}")
    at, number = divmod(index % total, len(games))[::-1]
    game, seed = games[at], _FIRST[kind] + number
    return {"id": f"{game.name}-{seed}", "game": game.name, "seed": seed}


def game_and_seed(task: JSONObject) -> tuple[Game, int]:
    """Game and seed of ``task``. Raises ValueError for an unknown game, a bad seed, or other fields."""
    extra = set(task) - {"id", "game", "seed"}
    if extra:
        raise ValueError(
            f"a task of textarena has game, seed and perhaps id; found {', '.join(sorted(extra))}"
        )
    name = task.get("game")
    game = GAMES_BY_NAME.get(name) if isinstance(name, str) else None
    if game is None:
        raise ValueError(f"no game {name!r} is offered; there are: {', '.join(GAMES_BY_NAME)}")
    seed = task.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= HIGHEST_SEED:
        raise ValueError(f"the seed of a task is a whole number from 0 to {HIGHEST_SEED}; found {seed!r}")
    return game, seed


def _parts(split: str) -> tuple[Kind, tuple[Game, ...]]:
    for kind in _COUNTS:
        if split == kind:
            return kind, GAMES
        name = split.removesuffix(f"-{kind}")
        if name != split and name in GAMES_BY_NAME:
            return kind, (GAMES_BY_NAME[name],)
    raise ValueError(
        f"no split {split!r}; there are train, test, and both for each game, as in {GAMES[0].name}-train"
    )
