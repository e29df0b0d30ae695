"""Functions of numbers and of lists of numbers."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]


# digit-checksum


def _checksum(params: Params, number: int) -> int:
    total, place = 0, 0
    while number:
        number, digit = divmod(number, params["base"])
        total += digit * params["weights"][place % len(params["weights"])]
        place += 1
    return int(total % params["modulus"])


_DIGIT_CHECKSUM = Problem(
    name="digit-checksum",
    signature="(number: int) -> int",
    words={
        "function": ("checksum", "weighted_digits", "control_number", "digit_code"),
        "thing": ("parcel", "ticket", "library card", "bank account", "passport"),
    },
    params=lambda rng: {
        "base": rng.randint(3, 16),
        "weights": [rng.randint(1, 9) for _ in range(rng.randint(2, 4))],
        "modulus": rng.randint(11, 97),
    },
    statements=(
        "The number of a {thing} has a check value. Write the number in base {base}. Multiply its digits, "
        "from the least significant one on, by the weights {weights} in turn, and start over with the first "
        "weight when they run out. The check value is the sum of the products modulo {modulus}. The number "
        "is not negative.",
        "Compute a checksum for the number (0 or more) of a {thing}: go through its digits in base {base} "
        "from right to left, weight them with {weights} cyclically (the first weight is for the last "
        "digit), add up, and return the remainder of the sum divided by {modulus}.",
    ),
    draw=lambda rng, params: [rng.randint(0, 10 ** rng.randint(1, 14))],
    reference=_checksum,
    solutions={
        "python": """
            def {{function}}(number):
                weights = [{{weights}}]
                digits = []
                while number > 0:
                    digits.append(number % {{base}})
                    number //= {{base}}
                return sum(d * weights[i % len(weights)] for i, d in enumerate(digits)) % {{modulus}}
        """
    },
)


# window-values

_STATISTICS = ("the sum", "the maximum", "the minimum", "the maximum minus the minimum", "the lower median")


def _of_window(statistic: str, window: list[int]) -> int:
    match statistic:
        case "the sum":
            return sum(window)
        case "the maximum":
            return max(window)
        case "the minimum":
            return min(window)
        case "the lower median":
            return sorted(window)[(len(window) - 1) // 2]
        case _:
            return max(window) - min(window)


def _windows(params: Params, numbers: list[int]) -> list[int]:
    found = []
    for start in range(0, len(numbers), params["step"]):
        window = numbers[start : start + params["width"]]
        if len(window) == params["width"] or params["short"] == "used as they are":
            found.append(_of_window(params["statistic"], window))
    return found


_WINDOW_VALUES = Problem(
    name="window-values",
    signature="(numbers: list[int]) -> list[int]",
    words={
        "function": ("windows", "rolling", "slide", "summaries"),
        "thing": ("temperatures", "prices", "heights", "readings"),
    },
    params=lambda rng: {
        "width": rng.randint(2, 7),
        "step": rng.randint(1, 4),
        "statistic": rng.choice(_STATISTICS),
        "short": rng.choice(("used as they are", "left out")),
    },
    statements=(
        "Given a list of {thing}, windows of {width} values start at the positions 0, {step}, 2 * {step} "
        "and so on, as long as the position is in the list. Return {statistic} of each window, in order. "
        "Windows at the end that have fewer than {width} values are {short}. The lower median of an even "
        "number of values is the lower one of the two in the middle.",
        "Return a list with {statistic} of each window over the {thing}. A window has {width} consecutive "
        "values, and each window starts {step} after the one before it; the first starts at index 0, the "
        "last at an index that is still in the list. Incomplete windows, at the end, are {short}. (With an "
        "even number of values, the lower median is the smaller of the two middle ones.)",
    ),
    draw=lambda rng, params: [[rng.randint(-50, 99) for _ in range(size(rng, 25))]],
    reference=_windows,
    solutions={
        "python": """
            def value(window):
                ordered = sorted(window)
                return {
                    "the sum": sum(ordered),
                    "the maximum": ordered[-1],
                    "the minimum": ordered[0],
                    "the maximum minus the minimum": ordered[-1] - ordered[0],
                    "the lower median": ordered[(len(ordered) - 1) // 2],
                }["{{statistic}}"]

            def {{function}}(numbers):
                result = []
                start = 0
                while start < len(numbers):
                    end = start + {{width}}
                    if end <= len(numbers) or "{{short}}" != "left out":
                        result.append(value(numbers[start:end]))
                    start += {{step}}
                return result
        """
    },
)


# join-intervals


def _joined(params: Params, intervals: list[list[int]]) -> list[list[int]]:
    joined: list[list[int]] = []
    for first, last in sorted(intervals):
        if joined and first - joined[-1][1] <= params["gap"]:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    kept = [each for each in joined if each[1] - each[0] >= params["shortest"]]
    return kept if params["order"] == "from early to late" else kept[::-1]


def _intervals(rng: Random, params: Params) -> list[Any]:
    starts = [rng.randint(0, 120) for _ in range(size(rng, 12))]
    return [[[start, start + rng.randint(0, 14)] for start in starts]]


_JOIN_INTERVALS = Problem(
    name="join-intervals",
    signature="(intervals: list[list[int]]) -> list[list[int]]",
    words={
        "function": ("join_intervals", "merge", "combine", "blocks"),
        "thing": ("shifts", "meetings", "maintenance windows", "bookings"),
    },
    params=lambda rng: {
        "gap": rng.randint(0, 9),
        "shortest": rng.randint(0, 9),
        "order": rng.choice(("from early to late", "from late to early")),
    },
    statements=(
        "Each of the {thing} is a pair [first, last] of minutes, first <= last, in no order. Join two of "
        "them, and what was joined before, when they overlap or when the second begins at most {gap} "
        "minutes after the end of the first (its first minus the other's last is {gap} or less). Of the "
        "result, keep those with last - first of {shortest} or more, and return them {order}.",
        "You get {thing} as pairs [first, last] with first <= last, unsorted. Those which overlap, or with "
        "a gap of {gap} or less between the last of one and the first of the next, become one, again and "
        "again, until nothing can be joined. Drop what is then shorter than {shortest} (last - first). "
        "Return the rest {order}.",
    ),
    draw=_intervals,
    reference=_joined,
    solutions={
        "python": """
            def {{function}}(intervals):
                todo = [list(each) for each in intervals]
                changed = True
                while changed:
                    changed = False
                    for a in range(len(todo)):
                        for b in range(len(todo)):
                            if a != b and todo[a][0] <= todo[b][0] <= todo[a][1] + {{gap}}:
                                todo[a][1] = max(todo[a][1], todo[b][1])
                                del todo[b]
                                changed = True
                                break
                        if changed:
                            break
                kept = sorted(each for each in todo if each[1] - each[0] >= {{shortest}})
                return kept if "{{order}}" == "from early to late" else kept[::-1]
        """
    },
)


# pick-positions: any right answer


def _pick(params: Params, weights: list[int], rest: int) -> list[int] | None:
    for count in range(params["fewest"], len(weights) + 1):
        for found in combinations(range(len(weights)), count):
            if _is_pick(params, weights, rest, list(found)):
                return list(found)
    return None


def _is_pick(params: Params, weights: list[int], rest: int, found: list[int]) -> bool:
    apart = all(b - a >= params["apart"] for a, b in pairwise(found))
    total = sum(weights[each] for each in found)
    return len(found) >= params["fewest"] and apart and total % params["modulus"] == rest


def _accepts_pick(params: Params, value: Any, output: Any) -> bool:
    weights, rest = value
    if not isinstance(output, list):
        return output is None and _pick(params, weights, rest) is None
    if not all(type(each) is int and 0 <= each < len(weights) for each in output):
        return False
    return _is_pick(params, weights, rest, output)


def _draw_pick(rng: Random, params: Params) -> list[Any]:
    """Mostly one with a choice, which is made first."""
    if rng.random() < 0.2:
        weights = [rng.randint(1, 60) for _ in range(size(rng, 11, 1))]
        return [weights, rng.randint(0, params["modulus"] - 1)]
    needed = params["apart"] * (params["fewest"] - 1) + 1
    weights = [rng.randint(1, 60) for _ in range(rng.randint(needed, 11))]
    chosen = range(0, len(weights), params["apart"])
    total = sum(
        weights[each] for at, each in enumerate(chosen) if at < params["fewest"] or rng.random() < 0.7
    )
    return [weights, total % params["modulus"]]


_PICK_POSITIONS = Problem(
    name="pick-positions",
    signature="(weights: list[int], rest: int) -> list[int] | None",
    words={
        "function": ("pick", "choose", "select_items", "find_positions"),
        "thing": ("crates", "stones", "parts", "bags"),
    },
    params=lambda rng: {
        "modulus": rng.randint(7, 31),
        "fewest": rng.randint(1, 3),
        "apart": rng.randint(1, 4),
    },
    statements=(
        "A row of {thing} has the given weights. Choose at least {fewest} of them, any two at least {apart} "
        "positions apart, so that the sum of their weights modulo {modulus} is rest. Return the positions, "
        "from 0, in ascending order; any right choice is accepted. Return None if there is no such choice. "
        "There are 11 {thing} at most.",
        "Find positions (ascending, counted from 0) in the list of weights of up to 11 {thing} such that: "
        "there are {fewest} positions or more; neighbouring positions differ by {apart} or more; and the "
        "weights at them add up to rest modulo {modulus}. Return any list of this kind, or None where none "
        "exists.",
    ),
    draw=_draw_pick,
    reference=_pick,
    accepts=_accepts_pick,
    solutions={
        "python": """
            def {{function}}(weights, rest):
                def search(start, taken, total):
                    if len(taken) >= {{fewest}} and total % {{modulus}} == rest:
                        return taken
                    for at in range(start, len(weights)):
                        found = search(at + {{apart}}, taken + [at], total + weights[at])
                        if found is not None:
                            return found
                    return None

                return search(0, [], 0)
        """
    },
)

PROBLEMS = (_DIGIT_CHECKSUM, _WINDOW_VALUES, _JOIN_INTERVALS, _PICK_POSITIONS)
