"""Templates of word problems. Numbers are drawn from ranges, or derived so that answers are short.

``solution`` uses only numbers in the text. A number that is drawn but not in the text (``hidden``) is the
quantity to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["NAMES", "TEMPLATES", "THINGS", "Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """One template: its text, the ranges of its numbers, and the expression that solves it."""

    level: int
    text: str
    solution: str
    numbers: Mapping[str, tuple[int, int]]
    derived: Mapping[str, str] = field(default_factory=dict[str, str])


NAMES = {
    "train": [
        "Aisha",
        "Ben",
        "Carla",
        "David",
        "Emeka",
        "Fatima",
        "Georg",
        "Hana",
        "Igor",
        "Jamila",
        "Kofi",
        "Lena",
        "Marco",
        "Noor",
        "Olga",
        "Pedro",
        "Quinn",
        "Rosa",
        "Sven",
        "Tara",
        "Umar",
        "Vera",
        "Wei",
        "Yara",
    ],
    "validation": ["Anders", "Bianca", "Chidi", "Dalia", "Enzo", "Freya", "Goran", "Hilde"],
    "test": ["Agnes", "Bruno", "Celeste", "Dmitri", "Elif", "Farid", "Greta", "Hugo"],
}

THINGS = [
    "apples",
    "marbles",
    "pencils",
    "stamps",
    "cards",
    "shells",
    "candles",
    "buttons",
    "cookies",
    "tulips",
    "coins",
    "stickers",
]

TEMPLATES = (
    Template(
        1,
        "{name} has {a} {thing} and finds {b} more. How many {thing} does {name} have now?",
        "{a} + {b}",
        {"a": (10, 999), "b": (10, 999)},
    ),
    Template(
        1,
        "{name} had {a} {thing} and gave {b} of them to {other}. How many {thing} does {name} have left?",
        "{a} - {b}",
        {"a": (200, 999), "b": (10, 199)},
    ),
    Template(
        1,
        "A box holds {a} {thing}. {name} buys {b} boxes. How many {thing} is that in all?",
        "{a} * {b}",
        {"a": (12, 240), "b": (3, 60)},
    ),
    Template(
        1,
        "{name} shares {total} {thing} fairly among {a} friends. How many {thing} does each friend get?",
        "{total} / {a}",
        {"a": (2, 25), "hidden": (3, 150)},
        {"total": "{a} * {hidden}"},
    ),
    Template(
        2,
        "{name} buys {a} {thing} at {b} dollars each and pays with {paid} dollars. "
        "How many dollars come back?",
        "{paid} - {a} * {b}",
        {"a": (2, 20), "b": (2, 30), "hidden": (1, 99)},
        {"paid": "{a} * {b} + {hidden}"},
    ),
    Template(
        2,
        "{name} fills {a} boxes with {b} {thing} each, and {c} {thing} are left over. "
        "How many {thing} did {name} have?",
        "{a} * {b} + {c}",
        {"a": (3, 40), "b": (12, 60), "c": (1, 11)},
    ),
    Template(
        2,
        "On each of {b} days {name} reads {a} pages and {other} reads {c} pages. "
        "How many pages do the two read together?",
        "({a} + {c}) * {b}",
        {"a": (10, 80), "b": (3, 30), "c": (10, 80)},
    ),
    Template(
        2,
        "{name} saves {a} dollars a week for {b} weeks, then spends {c} dollars on {thing}. "
        "How many dollars are left?",
        "{a} * {b} - {c}",
        {"a": (20, 120), "b": (5, 40), "c": (5, 99)},
    ),
    Template(
        3,
        "A crate of {thing} costs {a} dollars. {name} gets a discount of {p} percent. "
        "How many dollars does {name} pay?",
        "{a} * (100 - {p}) / 100",
        {"a": (20, 900), "hidden": (1, 15)},
        {"p": "5 * {hidden}"},
    ),
    Template(
        3,
        "{name} scores {a}, {b}, {c} and {d} points in four games. "
        "How many points is that per game on average?",
        "({a} + {b} + {c} + {d}) / 4",
        {"a": (5, 99), "b": (5, 99), "c": (5, 99), "d": (5, 99)},
    ),
    Template(
        3,
        "{name} cycles {a} kilometres in {b} hours. How many kilometres does {name} cycle in {c} hours "
        "at the same speed?",
        "{a} * {c} / {b}",
        {"a": (20, 150), "b": (2, 9), "c": (2, 12)},
    ),
    Template(
        3,
        "Among the {total} {thing} that {name} owns, {a} in every {b} are red. "
        "How many red {thing} are there?",
        "{total} * {a} / {b}",
        {"a": (1, 4), "b": (5, 12), "hidden": (3, 90)},
        {"total": "{b} * {hidden}"},
    ),
    Template(
        4,
        "{name} works {a} hours for {b} dollars an hour and {c} hours of overtime for {d} dollars an hour. "
        "Of all that, {p} percent is tax. How many dollars remain?",
        "({a} * {b} + {c} * {d}) * (100 - {p}) / 100",
        {"a": (20, 40), "b": (12, 45), "c": (1, 10), "d": (46, 70), "p": (5, 35)},
    ),
    Template(
        4,
        "{name} has {a} times as many {thing} as {other}. Together they have {total} {thing}. "
        "How many more {thing} does {name} have than {other}?",
        "{total} * ({a} - 1) / ({a} + 1)",
        {"a": (2, 12), "hidden": (4, 150)},
        {"total": "({a} + 1) * {hidden}"},
    ),
    Template(
        4,
        "Two pipes bring {a} and {b} litres a minute into an empty tank of {total} litres, "
        "and a leak loses {c} litres a minute. How many minutes pass until {name} sees the tank full?",
        "{total} / ({a} + {b} - {c})",
        {"a": (12, 60), "b": (12, 60), "c": (2, 11), "hidden": (5, 90)},
        {"total": "({a} + {b} - {c}) * {hidden}"},
    ),
    Template(
        4,
        "{name} is {a} years older than {other}. In {b} years their ages will add up to {total}. "
        "How old is {name} today?",
        "({total} - 2 * {b} + {a}) / 2",
        {"a": (2, 30), "b": (2, 25), "hidden": (3, 50)},
        {"total": "2 * {hidden} + {a} + 2 * {b}"},
    ),
    Template(
        4,
        "{name} fences a garden {a} metres long and {b} metres wide, but leaves {c} metres open for a gate. "
        "A metre of fence costs {d} dollars, and {other} pays {p} percent of the bill. "
        "How many dollars does {name} pay?",
        "(2 * ({a} + {b}) - {c}) * {d} * (100 - {p}) / 100",
        {"a": (10, 80), "b": (8, 60), "c": (1, 5), "d": (6, 40), "hidden": (1, 10)},
        {"p": "5 * {hidden}"},
    ),
)
