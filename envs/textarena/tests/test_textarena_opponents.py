"""The scripted opponents: always legal, the same for the same seed, and neither perfect nor helpless."""

import random
from collections import Counter

import pytest

pytest.importorskip(
    "textarena", reason="needs the package textarena: tests/envs/test_textarena.py runs this file where it is"
)

from textarena_env.catalog import GAMES, GAMES_BY_NAME
from textarena_env.match import Match
from textarena_env.opponents import OPPONENTS

from .players import acting, finish

DUELS = [game for game in GAMES if game.opponent]


def test_each_duel_has_an_opponent_and_no_other_game() -> None:
    assert sorted(OPPONENTS) == sorted(game.name for game in DUELS)


@pytest.mark.parametrize("game", DUELS, ids=lambda game: game.name)
def test_an_opponent_never_makes_an_invalid_move_and_takes_both_seats(game) -> None:  # type: ignore[no-untyped-def]
    seats, rewards = Counter[int](), Counter[float]()
    for seed in range(60):
        match = Match(game, seed)
        finish(match, acting(random.Random(seed)))
        assert match.outcome is not None
        assert not match.play.info(0)["invalid_move"]
        assert not match.play.info(1)["invalid_move"]
        seats[match.seat] += 1
        rewards[match.outcome.reward] += 1
    assert min(seats[0], seats[1]) > 10
    assert rewards[1.0] > 3
    assert rewards[-1.0] > 3


@pytest.mark.parametrize(("name", "least"), [("TicTacToe-v0", 25), ("ConnectFour-v0", 30)])
def test_a_thoughtless_player_loses_mostly_where_the_opponent_looks_ahead(name: str, least: int) -> None:
    lost = 0
    for seed in range(40):
        rng = random.Random(seed)
        match = Match(GAMES_BY_NAME[name], seed)
        board = match.play.bare.state.game_state["board"]

        def move(match: Match) -> str:
            if name == "ConnectFour-v0":
                return f"[{rng.choice([c for c in range(7) if board[0][c] == '.'])}]"  # noqa: B023
            return f"[{rng.choice([3 * r + c for r in range(3) for c in range(3) if not board[r][c]])}]"  # noqa: B023

        finish(match, move)
        assert match.outcome is not None
        lost += match.outcome.reward == -1
    assert lost >= least
