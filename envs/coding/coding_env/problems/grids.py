"""Functions of grids: moves, automata, paths."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]

_Grid = list[list[int]]


def _grid(rng: Random, low: int, high: int, most: int = 6) -> _Grid:
    width = size(rng, most, 1)
    return [[rng.randint(low, high) for _ in range(width)] for _ in range(size(rng, most, 1))]


# grid-moves

_MOVES = (
    "turn it clockwise",
    "turn it counter-clockwise",
    "mirror it left to right",
    "flip it upside down",
    "transpose it",
    "move the last row to the top",
    "move the first column to the right end",
)


def _move(move: str, grid: _Grid) -> _Grid:
    match _MOVES.index(move):
        case 0:
            return [list(row) for row in zip(*grid[::-1], strict=True)]
        case 1:
            return [list(row) for row in zip(*grid, strict=True)][::-1]
        case 2:
            return [row[::-1] for row in grid]
        case 3:
            return grid[::-1]
        case 4:
            return [list(row) for row in zip(*grid, strict=True)]
        case 5:
            return [grid[-1], *grid[:-1]]
        case _:
            return [[*row[1:], row[0]] for row in grid]


def _moved(params: Params, grid: _Grid) -> _Grid:
    for move in params["moves"]:
        grid = _move(move, grid)
    return grid


_GRID_MOVES = Problem(
    name="grid-moves",
    signature="(grid: list[list[int]]) -> list[list[int]]",
    words={
        "function": ("rearrange", "shuffle_grid", "transform", "apply_moves"),
        "thing": ("picture", "game board", "map", "puzzle"),
    },
    params=lambda rng: {"moves": rng.sample(_MOVES, rng.randint(3, 5))},
    statements=(
        "A {thing} is given as a list of rows of equal length; it has at least one row and one column. "
        "Change it step by step: {moves}. Turns are by a quarter, and transposing exchanges rows and "
        "columns. Return the rows of the result.",
        "Take a {thing} (rows of numbers, all of the same length, none empty) and return what is left of it "
        "after these steps, in this order: {moves}. A turn is one of 90 degrees; to transpose means that "
        "element [i][j] becomes element [j][i].",
    ),
    draw=lambda rng, params: [_grid(rng, 0, 99, 5)],
    reference=_moved,
    solutions={
        "python": """
            def {{function}}(grid):
                for move in "{{moves}}".split(", "):
                    h, w = len(grid), len(grid[0])
                    if move == "turn it clockwise":
                        grid = [[grid[h - 1 - j][i] for j in range(h)] for i in range(w)]
                    elif move == "turn it counter-clockwise":
                        grid = [[grid[j][w - 1 - i] for j in range(h)] for i in range(w)]
                    elif move == "mirror it left to right":
                        grid = [[grid[i][w - 1 - j] for j in range(w)] for i in range(h)]
                    elif move == "flip it upside down":
                        grid = [grid[h - 1 - i] for i in range(h)]
                    elif move == "transpose it":
                        grid = [[grid[j][i] for j in range(h)] for i in range(w)]
                    elif move == "move the last row to the top":
                        grid = [grid[(i - 1) % h] for i in range(h)]
                    else:
                        grid = [[grid[i][(j + 1) % w] for j in range(w)] for i in range(h)]
                return grid
        """
    },
)


# automaton


def _automaton_params(rng: Random) -> dict[str, Any]:
    around = rng.choice((4, 8))
    return {
        "around": around,
        "born": sorted(rng.sample(range(1, around + 1), rng.randint(1, 3))),
        "stays": sorted(rng.sample(range(around + 1), rng.randint(1, 4))),
        "steps": rng.randint(1, 4),
        "edge": rng.choice(("is dead", "wraps around")),
    }


def _live(params: Params, grid: _Grid) -> _Grid:
    height, width = len(grid), len(grid[0])
    ways = [
        (y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y or x) and (params["around"] == 8 or not y * x)
    ]

    def cell(y: int, x: int) -> int:
        if params["edge"] == "wraps around":
            return grid[y % height][x % width]
        return grid[y][x] if 0 <= y < height and 0 <= x < width else 0

    for _ in range(params["steps"]):
        counts = [[sum(cell(y + dy, x + dx) for dy, dx in ways) for x in range(width)] for y in range(height)]
        grid = [
            [int(counts[y][x] in params["stays" if grid[y][x] else "born"]) for x in range(width)]
            for y in range(height)
        ]
    return grid


_AUTOMATON = Problem(
    name="automaton",
    signature="(grid: list[list[int]]) -> list[list[int]]",
    words={
        "function": ("evolve", "next_states", "simulate", "grow"),
        "thing": ("bacteria", "lichen", "crystals", "lamps"),
    },
    params=_automaton_params,
    statements=(
        "A grid (rows of equal length, at least one row and column) shows where there are {thing}: 1 for "
        "alive, 0 for dead. In each step all cells change at once. A dead cell becomes alive if its number "
        "of living neighbours is one of: {born}. A living cell stays alive if that number is one of: "
        "{stays}; else it dies. A cell has {around} neighbours (4: up, down, left and right; 8: also "
        "diagonally), and what is beyond the edge of the grid {edge}. Where it wraps around, a cell of a "
        "narrow grid may be its own neighbour, or count several times. Return the grid after {steps} "
        "step(s).",
        "Simulate {thing} on a grid of 0 and 1 for {steps} step(s) and return the grid. Each cell counts "
        "the living (1) among its {around} neighbours (with 4 these are the ones that share an edge, with 8 "
        "those that share a corner too). Birth: a 0 becomes 1 for a count among {born}. Survival: a 1 stays "
        "1 for a count among {stays}. All other cells are 0 afterwards. The outside of the grid {edge} (if "
        "it wraps around, positions are taken modulo height and width, also in grids so narrow that a "
        "position is counted more than once).",
    ),
    draw=lambda rng, params: [_grid(rng, 0, 1)],
    reference=_live,
    solutions={
        "python": """
            def {{function}}(grid):
                born, stays = [{{born}}], [{{stays}}]
                wrap = "{{edge}}" == "wraps around"
                h, w = len(grid), len(grid[0])
                moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
                if {{around}} == 8:
                    moves += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
                for _ in range({{steps}}):
                    counts = [[0] * w for _ in range(h)]
                    for y in range(h):
                        for x in range(w):
                            if not grid[y][x]:
                                continue
                            for dy, dx in moves:
                                to_y, to_x = y + dy, x + dx
                                if wrap:
                                    to_y, to_x = to_y % h, to_x % w
                                if 0 <= to_y < h and 0 <= to_x < w:
                                    counts[to_y][to_x] += 1
                    grid = [
                        [1 if n in (stays if alive else born) else 0 for n, alive in zip(ns, row)]
                        for ns, row in zip(counts, grid)
                    ]
                return grid
        """
    },
)


# cheapest-path


def _cheapest(params: Params, heights: _Grid) -> int:
    height, width = len(heights), len(heights[0])
    costs = {(0, 0): 0}
    queue = [(0, 0, 0)]
    while queue:
        cost, y, x = heapq.heappop(queue)
        if (y, x) == (height - 1, width - 1):
            return cost
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            to = y + dy, x + dx
            if not (0 <= to[0] < height and 0 <= to[1] < width):
                continue
            rise = heights[to[0]][to[1]] - heights[y][x]
            step = params["diagonal"] if dy and dx else params["straight"]
            total = cost + step + (params["up"] * rise if rise > 0 else params["down"] * -rise)
            if total < costs.get(to, total + 1):
                costs[to] = total
                heapq.heappush(queue, (total, *to))
    raise AssertionError("every cell can be reached")


_CHEAPEST_PATH = Problem(
    name="cheapest-path",
    signature="(heights: list[list[int]]) -> int",
    words={
        "function": ("cheapest", "least_effort", "path_cost", "climb"),
        "who": ("hiker", "robot", "mule", "cable layer"),
    },
    params=lambda rng: {
        "straight": rng.randint(1, 9),
        "diagonal": rng.randint(1, 14),
        "up": rng.randint(1, 7),
        "down": rng.randint(0, 3),
    },
    statements=(
        "A {who} goes from the top left to the bottom right cell of a grid of heights (rows of equal "
        "length). A step to one of the four neighbours costs {straight}, a diagonal step costs {diagonal}; "
        "besides, each unit of height gained costs {up} and each unit of height lost costs {down}. Return "
        "the least total cost.",
        "Given a grid of heights, what does the cheapest way from its first cell (top left) to its last "
        "(bottom right) cost a {who}? Moves go to any of the eight cells around: {straight} for up, down, "
        "left and right, {diagonal} for diagonal ones, plus {up} times the difference of heights when it "
        "goes up, or {down} times the difference when it goes down.",
    ),
    draw=lambda rng, params: [_grid(rng, 0, rng.choice((1, 5, 9)))],
    reference=_cheapest,
    solutions={
        "python": """
            def {{function}}(heights):
                h, w = len(heights), len(heights[0])
                best = [[10**9] * w for _ in range(h)]
                best[0][0] = 0
                changed = True
                while changed:
                    changed = False
                    for y in range(h):
                        for x in range(w):
                            for i in range(max(0, y - 1), min(h, y + 2)):
                                for j in range(max(0, x - 1), min(w, x + 2)):
                                    if (i, j) == (y, x):
                                        continue
                                    cost = {{diagonal}} if i != y and j != x else {{straight}}
                                    cost += {{up}} * max(0, heights[y][x] - heights[i][j])
                                    cost += {{down}} * max(0, heights[i][j] - heights[y][x])
                                    if best[i][j] + cost < best[y][x]:
                                        best[y][x] = best[i][j] + cost
                                        changed = True
                return best[-1][-1]
        """
    },
)

PROBLEMS = (_GRID_MOVES, _AUTOMATON, _CHEAPEST_PATH)
