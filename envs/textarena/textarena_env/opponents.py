"""The scripted opponents: one for each game of two, from the game's state to a legal action.

They are simple on purpose: a model that plays at random loses to most, one that thinks a little wins.
Each is made for one episode, with a generator that all its chance comes from: same task, same opponent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["OPPONENTS", "Script"]

Script = Callable[[Any], str]
"""Takes the game without its wrappers, at the opponent's turn; gives the opponent's action."""

Board = list[list[str]]
Cell = tuple[int, int]

ROWS_OF_THREE = tuple(
    [tuple((r, c) for c in range(3)) for r in range(3)]
    + [tuple((r, c) for r in range(3)) for c in range(3)]
    + [tuple((i, i) for i in range(3)), tuple((i, 2 - i) for i in range(3))]
)


def _tic_tac_toe(game: Any, rng: random.Random) -> str:
    board: Board = game.state.game_state["board"]
    mine, theirs = ("X", "O") if game.state.current_player_id == 1 else ("O", "X")
    free = [(r, c) for r in range(3) for c in range(3) if not board[r][c]]
    row, column = _completing(board, mine) or _completing(board, theirs) or rng.choice(free)
    return f"[{3 * row + column}]"


def _wild_tic_tac_toe(game: Any, rng: random.Random) -> str:
    board: Board = game.state.game_state["board"]
    for mark in ("X", "O"):
        if cell := _completing(board, mark):
            return f"[{mark} {3 * cell[0] + cell[1]}]"
    row, column = rng.choice([(r, c) for r in range(3) for c in range(3) if not board[r][c]])
    return f"[{rng.choice('XO')} {3 * row + column}]"


def _completing(board: Board, mark: str) -> Cell | None:
    """The free cell that completes three of ``mark``."""
    for cells in ROWS_OF_THREE:
        marks = [board[r][c] for r, c in cells]
        if marks.count(mark) == 2 and "" in marks:
            return cells[marks.index("")]
    return None


def _connect_four(game: Any, rng: random.Random) -> str:
    board: Board = game.state.game_state["board"]
    mine, theirs = ("X", "O") if game.state.current_player_id == 0 else ("O", "X")
    open_columns = [column for column in range(len(board[0])) if board[0][column] == "."]
    for disc in (mine, theirs):
        for column in open_columns:
            if _connects(board, column, disc):
                return f"[col {column}]"
    return f"[col {rng.choice(open_columns)}]"


def _connects(board: Board, column: int, disc: str) -> bool:
    """True if ``disc`` in ``column`` makes four in a row."""
    row = max(r for r in range(len(board)) if board[r][column] == ".")

    def run(down: int, right: int) -> int:
        length, r, c = 0, row + down, column + right
        while 0 <= r < len(board) and 0 <= c < len(board[0]) and board[r][c] == disc:
            length, r, c = length + 1, r + down, c + right
        return length

    return any(1 + run(d, r) + run(-d, -r) >= 4 for d, r in ((0, 1), (1, 0), (1, 1), (1, -1)))


def _nim(game: Any, rng: random.Random) -> str:
    piles: Sequence[int] = game.state.game_state["piles"]
    balance = 0
    for pile in piles:
        balance ^= pile
    winning = [(at, pile - (pile ^ balance)) for at, pile in enumerate(piles) if pile ^ balance < pile]
    if winning and rng.random() < 0.5:
        at, taken = rng.choice(winning)
    else:
        at = rng.choice([at for at, pile in enumerate(piles) if pile])
        taken = rng.randint(1, piles[at])
    return f"[{at} {taken}]"


def _kuhn_poker(game: Any, rng: random.Random) -> str:
    state: Mapping[str, Any] = game.state.game_state
    card: int = state["player_cards"][game.state.current_player_id]
    legal: Mapping[str, Any] = state["current_legal_action_tree"]
    bold = card == 2 or rng.random() < (1 / 3 if "bet" in legal else card / 2)
    return (
        f"[{next(action for action in (('bet', 'call') if bold else ('check', 'fold')) if action in legal)}]"
    )


def _othello(game: Any, rng: random.Random) -> str:
    moves: list[list[int]] = game._valid_moves("B" if game.state.current_player_id == 0 else "W")
    last = game.N - 1
    corners = [move for move in moves if move[0] in (0, last) and move[1] in (0, last)]
    if not moves:
        return "[skip]"  # whatever is said: the game itself skips
    row, column = rng.choice(corners or moves)
    return f"[{row}, {column}]"


def _pig_dice(game: Any, rng: random.Random) -> str:
    state: Mapping[str, Any] = game.state.game_state
    total: int = state["turn_total"]
    enough = state["scores"][game.state.current_player_id] + total >= game.winning_score
    return "[hold]" if total >= 20 or enough else "[roll]"


def _pure_strategy(game: Any, rng: random.Random) -> str:
    state: Mapping[str, Any] = game.state.game_state
    hand: Iterable[int] = state["player_hands"][game.state.current_player_id]
    wanted = state["current_prize"] + rng.randint(-2, 2)
    card = min(hand, key=lambda value: (abs(value - wanted), value))
    return f"[{game._val_to_face(card)}]"


def _leaning(*choices: str) -> Callable[[random.Random], Script]:
    """An opponent of a game without sight, that has a favourite for the whole episode."""

    def made(rng: random.Random) -> Script:
        favourite = rng.choice(choices)
        return lambda game: f"[{rng.choice([*choices, favourite])}]"

    return made


def _chopsticks(game: Any, rng: random.Random) -> str:
    player: int = game.state.current_player_id
    hands: Mapping[int, list[int]] = game.state.game_state["hands"]
    attacks = [(m, o) for m in (0, 1) for o in (0, 1) if hands[player][m] and hands[1 - player][o]]
    deadly = [(m, o) for m, o in attacks if hands[player][m] + hands[1 - player][o] >= 5]
    mine, other = rng.choice(deadly or attacks)
    return f"[attack {mine} {other}]"


def _scripted(move: Callable[[Any, random.Random], str]) -> Callable[[random.Random], Script]:
    """An opponent that looks at the game and nothing else."""
    return lambda rng: lambda game: move(game, rng)


OPPONENTS: Mapping[str, Callable[[random.Random], Script]] = {
    "Chopsticks-v0": _scripted(_chopsticks),
    "ConnectFour-v0": _scripted(_connect_four),
    "GameOfPureStrategy-v0": _scripted(_pure_strategy),
    "IteratedMatchingPennies-v0": _leaning("heads", "tails"),
    "IteratedRockPaperScissors-v0": _leaning("rock", "paper", "scissors"),
    "KuhnPoker-v0-short": _scripted(_kuhn_poker),
    "Nim-v0": _scripted(_nim),
    "Othello-v0-small": _scripted(_othello),
    "PigDice-v0-50": _scripted(_pig_dice),
    "TicTacToe-v0": _scripted(_tic_tac_toe),
    "WildTicTacToe-v0": _scripted(_wild_tic_tac_toe),
}
