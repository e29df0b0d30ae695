"""Players for tests: they look into the game, so they can act validly at random, or win."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from textarena_env.match import Match
from textarena_env.opponents import OPPONENTS

__all__ = ["NONSENSE", "WINNING", "acting", "finish"]

Cell = tuple[int, int]
Actions = Iterator[str]

STEPS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

NONSENSE = (
    "", " ", "[", "]", "[]", "x", "[²]", "[١ ٢]", "[0]", "[-1 -1]", "[1 2 3]", "[1,1,1]", "\x00", "[a b x]",
    "[z9z9]", "[split 1 1]", "[²,²,²]", "[h ² ²]", "[Ⅷ Ⅷ]", "[𝟙 𝟚]", "[0 0 0 0]", "[X 4]", "[col ²]",
    "[" + "9" * 3_900 + "]", "[" + "9" * 1_900 + " " + "9" * 1_900 + "]", "[up" * 1_300,
)  # fmt: skip
"""Invalid and malformed actions."""


def finish(match: Match, action: Callable[[Match], str]) -> list[tuple[str, str]]:
    """Play to the end. Returns the pairs of action and answer."""
    record = []
    while not match.over:
        said = action(match)
        record.append((said, match.act(said)))
    return record


def acting(rng: random.Random, nonsense: float = 0.0) -> Callable[[Match], str]:
    """A player that acts at random, mostly validly, with a share of ``nonsense``."""

    def act(match: Match) -> str:
        if rng.random() < nonsense:
            return rng.choice(NONSENSE)
        if match.game.opponent:
            return OPPONENTS[match.game.name](rng)(match.play.bare)
        return ACTIONS[match.game.name.partition("-")[0]](match.play.bare, rng)

    return act


def _crosswords(game: Any, rng: random.Random) -> str:
    return rng.choice(_letters(game))


def _letters(game: Any) -> list[str]:
    state = game.state.game_state
    return [
        f"[{row} {column} {letter}]"
        for row, line in enumerate(state["solution"])
        for column, letter in enumerate(line)
        if letter != "." and state["board"][row][column] == "_"
    ]


def _marks(game: Any) -> list[str]:
    return [
        f"[{row} {column} {mark}]"
        for name, grid in game.game_board_solution.items()
        for row, cells in grid.items()
        for column, mark in cells.items()
        if game.game_board[name][row][column] != mark
    ]


def _cells(game: Any) -> list[str]:
    """The empty cells of a Sudoku, with what belongs there."""
    board = game.state.game_state["board"]
    return [
        f"[{row + 1} {column + 1} {game.full_grid[row][column]}]"
        for row, column in product(range(9), repeat=2)
        if not board[row][column]
    ]


def _jumps(game: Any) -> list[Cell]:
    board = game.state.game_state["board"]
    return [(a, c) for a, b, c in game.ALLOWED_MOVES if board[a] and board[b] and not board[c]]


def _edge(game: Any, rng: random.Random) -> str:
    flat = rng.random() < 0.5
    return f"[{'h' if flat else 'v'} {rng.randrange(game.R + flat)} {rng.randrange(game.C + (not flat))}]"


ACTIONS: dict[str, Callable[[Any, random.Random], str]] = {
    "2048": lambda game, rng: f"[{rng.choice(list(STEPS))}]",
    "Blackjack": lambda game, rng: rng.choice(["[hit]", "[stand]"]),
    "Countdown": lambda game, rng: "[{} {} {}]".format(
        *rng.sample(range(len(game.numbers)), 2), rng.choice("+-*")
    ),
    "Crosswords": _crosswords,
    "Cryptarithm": lambda game, rng: f"[{rng.choice(sorted(game.letters))} {rng.randrange(10)}]",
    "FrozenLake": lambda game, rng: f"[{rng.choice(list(STEPS))}]",
    "GuessTheNumber": lambda game, rng: f"[{rng.randint(1, game.max_number)}]",
    "LightsOut": lambda game, rng: f"[{rng.randrange(5)} {rng.randrange(5)}]",
    "LogicPuzzle": lambda game, rng: rng.choice(_marks(game)),
    "Mastermind": lambda game, rng: "[{}]".format(
        " ".join(map(str, rng.sample(range(1, game.num_numbers + 1), game.code_length)))
    ),
    "Minesweeper": lambda game, rng: f"[{rng.randrange(game.rows)} {rng.randrange(game.cols)}]",
    "PegJump": lambda game, rng: "[{} {}]".format(*rng.choice(_jumps(game))),
    "RushHour": lambda game, rng: (
        f"[{rng.choice(sorted(game.state.game_state['vehicles']))}{rng.choice('+-')}]"
    ),
    "Secretary": lambda game, rng: rng.choice(["[accept]", "[continue]", "[continue]"]),
    "Slitherlink": _edge,
    "Sokoban": lambda game, rng: f"[{rng.choice(list(STEPS))}]",
    "Sudoku": lambda game, rng: rng.choice(_cells(game)),
    "ThreeCardMonte": lambda game, rng: f"[{rng.randrange(3)}]",
    "TowerOfHanoi": lambda game, rng: "[{} {}]".format(*rng.sample("ABC", 2)),
}


def _countdown(game: Any) -> Actions:
    """Every way to combine the numbers, the first that reaches the target."""

    def search(numbers: list[int]) -> list[str] | None:
        for i, j in product(range(len(numbers)), repeat=2):
            if i == j:
                continue
            rest = [number for at, number in enumerate(numbers) if at not in (i, j)]
            for sign, value in (
                ("+", numbers[i] + numbers[j]),
                ("-", numbers[i] - numbers[j]),
                ("*", numbers[i] * numbers[j]),
            ):
                if value <= 0 or value > 5_000:
                    continue
                if value == game.target:
                    return [f"[{i} {j} {sign}]"]
                if len(rest) and (found := search([*rest, value])) is not None:
                    return [f"[{i} {j} {sign}]", *found]
        return None

    yield from search(list(game.numbers)) or []


def _cryptarithm(game: Any) -> Actions:
    """Column by column from the right, as on paper."""
    words = [*game.addends, game.result]
    columns = [[word[-1 - at] for word in words if at < len(word)] for at in range(len(game.result))]

    def search(at: int, carry: int, digits: dict[str, int]) -> dict[str, int] | None:
        if at == len(columns):
            return None if carry else digits
        missing = [letter for letter in dict.fromkeys(columns[at]) if letter not in digits]
        if missing:
            for digit in range(10):
                if digit in digits.values() or (digit == 0 and missing[0] in game.first_letters):
                    continue
                if found := search(at, carry, {**digits, missing[0]: digit}):
                    return found
            return None
        total = carry + sum(digits[letter] for letter in columns[at][:-1])
        return search(at + 1, total // 10, digits) if total % 10 == digits[columns[at][-1]] else None

    for letter, digit in (search(0, 0, {}) or {}).items():
        yield f"[{letter} {digit}]"


def _path(start: Cell, goal: Cell, free: Callable[[Cell], bool]) -> list[str]:
    seen: dict[Cell, list[str]] = {start: []}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == goal:
            return seen[here]
        for name, (down, right) in STEPS.items():
            there = (here[0] + down, here[1] + right)
            if there not in seen and free(there):
                seen[there] = [*seen[here], f"[{name}]"]
                waiting.append(there)
    return []


def _frozen_lake(game: Any) -> Actions:
    state = game.state.game_state
    size = range(game.size)
    yield from _path(
        tuple(state["player_pos"]),
        tuple(state["goal_pos"]),
        lambda cell: cell[0] in size and cell[1] in size and state["grid"][cell[0]][cell[1]] != "H",
    )


def _lights_out(game: Any) -> Actions:
    """Try the first row; each row after it follows from the lights above."""
    for first in product((False, True), repeat=5):
        grid = [row[:] for row in game.state.game_state["grid"]]
        presses: list[Cell] = []
        for row in range(5):
            for column in range(5):
                if first[column] if row == 0 else grid[row - 1][column]:
                    presses.append((row, column))
                    game._toggle_lights(grid, row, column)
        if not any(map(any, grid)) and len(presses) <= 20:
            yield from (f"[{row} {column}]" for row, column in presses)
            return


def _minesweeper(game: Any) -> Actions:
    yield "[0 0]"
    for row, column in product(range(game.rows), range(game.cols)):
        if not game.revealed[row][column] and game.grid[row][column] != -1:
            yield f"[{row} {column}]"


def _peg_jump(game: Any) -> Actions:
    moves = game.ALLOWED_MOVES
    dead: set[tuple[bool, ...]] = set()

    def search(board: tuple[bool, ...]) -> list[str] | None:
        if sum(board) == 1:
            return []
        for start, over, end in moves if board not in dead else ():
            if board[start] and board[over] and not board[end]:
                after = list(board)
                after[start], after[over], after[end] = False, False, True
                if (found := search(tuple(after))) is not None:
                    return [f"[{start} {end}]", *found]
        dead.add(board)
        return None

    yield from search(tuple(game.state.game_state["board"])) or []


def _rush_hour(game: Any) -> Actions:
    start = {name: car.copy() for name, car in game.state.game_state["vehicles"].items()}
    seen = {game._get_state_hash(start)}
    waiting: deque[tuple[dict[str, Any], list[str]]] = deque([(start, [])])
    while waiting:
        cars, moves = waiting.popleft()
        if game._is_solved_state(cars):
            yield from moves
            return
        for name, forward in product(cars, (True, False)):
            if game._can_move(cars, cars[name], forward):
                after = {other: car.copy() for other, car in cars.items()}
                after[name].move(forward)
                if (key := game._get_state_hash(after)) not in seen:
                    seen.add(key)
                    waiting.append((after, [*moves, f"[{name}{'+' if forward else '-'}]"]))


def _secretary(game: Any) -> Actions:
    draws: list[float] = game.state.game_state["draws"]
    yield from ["[continue]"] * draws.index(max(draws))
    yield "[accept]"


def _slitherlink(game: Any) -> Actions:
    """All loops that the game invents are rectangles."""
    for top, left in product(range(game.R), range(game.C)):
        for bottom, right in product(range(top + 1, game.R + 1), range(left + 1, game.C + 1)):
            flat = {(row, column) for row in (top, bottom) for column in range(left, right)}
            upright = {(row, column) for row in range(top, bottom) for column in (left, right)}
            game.h_edges, game.v_edges = flat, upright
            solved = game._is_solved()
            game.h_edges, game.v_edges = set(), set()
            if solved:
                yield from (f"[h {row} {column}]" for row, column in sorted(flat))
                yield from (f"[v {row} {column}]" for row, column in sorted(upright))
                return


def _sokoban(game: Any) -> Actions:
    """Breadth first over where the player and the boxes are."""
    cells = list(product(range(game.room_fixed.shape[0]), range(game.room_fixed.shape[1])))
    floor = {cell for cell in cells if game.room_fixed[cell]}
    goals = frozenset(cell for cell in cells if game.room_fixed[cell] == 2)
    boxes = frozenset(cell for cell in cells if game.room_state[cell] in (3, 4))
    start: tuple[Cell, frozenset[Cell]] = (tuple(game.player_position), boxes)
    seen, waiting = {start}, deque([(start, [""])])
    while waiting:
        (player, boxes), moves = waiting.popleft()
        if boxes == goals:
            yield from moves[1:]
            return
        for name, (down, right) in STEPS.items():
            ahead, beyond = [(player[0] + down * far, player[1] + right * far) for far in (1, 2)]
            pushed = boxes - {ahead} | {beyond} if ahead in boxes else boxes
            if ahead not in floor or (ahead in boxes and (beyond in boxes or beyond not in floor)):
                continue
            if (ahead, pushed) not in seen:
                seen.add((ahead, pushed))
                waiting.append(((ahead, pushed), [*moves, f"[{name}]"]))


def _tower_of_hanoi(game: Any) -> Actions:
    def move(disks: int, start: str, end: str, other: str) -> Actions:
        if disks:
            yield from move(disks - 1, start, other, end)
            yield f"[{start} {end}]"
            yield from move(disks - 1, other, end, start)

    yield from move(game.num_disks, "A", "C", "B")


def _spaced(numbers: Sequence[int]) -> str:
    return f"[{' '.join(map(str, numbers))}]"


WINNING: dict[str, Callable[[Any], Actions]] = {
    "Countdown-v0": _countdown,
    "Crosswords-v0": lambda game: iter([" ".join(_letters(game))]),
    "Cryptarithm-v0": _cryptarithm,
    "FrozenLake-v0": _frozen_lake,
    "FrozenLake-v0-random": _frozen_lake,
    "GuessTheNumber-v0-hardcore": lambda game: iter([f"[{game.game_number}]"]),
    "LightsOut-v0": _lights_out,
    "LogicPuzzle-v0": lambda game: iter([" ".join(_marks(game))]),
    "Mastermind-v0-extreme": lambda game: iter([_spaced(game.state.game_state["secret_code"])]),
    "Minesweeper-v0": _minesweeper,
    "PegJump-v0": _peg_jump,
    "RushHour-v0": _rush_hour,
    "Secretary-v0-long": _secretary,
    "Slitherlink-v0": _slitherlink,
    "Sokoban-v0": _sokoban,
    "Sudoku-v0-medium": lambda game: iter(_cells(game)),
    "ThreeCardMonte-v0": lambda game: iter([f"[{game.ball_pos}]"]),
    "TowerOfHanoi-v0-hard": _tower_of_hanoi,
}
"""Actions that win, from what the game hides."""
