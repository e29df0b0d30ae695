"""Tasks by index, and the hidden number of each.

A task has its split, its index, the range and the number of guesses, but not the number. The number is a
keyed hash of split and index, so it is the same in every worker, and tasks reveal nothing about it. The key
determines the numbers: set ``GUESS_KEY`` if players can read this source.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256

from orsay import JSONObject

__all__ = ["SPLITS", "TASKS_PER_SPLIT", "hidden_number", "make_task", "own_task"]

SPLITS = ("train", "validation", "test")
TASKS_PER_SPLIT = 100_000

LEVELS = ((100, 10), (1_000, 13), (10_000, 17))
"""Highest number and guesses allowed: three more than halving the range needs."""


def make_task(split: str, index: int) -> JSONObject:
    """The task at ``index``, negative from the end. Raises IndexError, or ValueError for the split."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}; there are: {', '.join(SPLITS)}")
    if not -TASKS_PER_SPLIT <= index < TASKS_PER_SPLIT:
        raise IndexError(f"no task {index} in {split}; there are {TASKS_PER_SPLIT}")
    index %= TASKS_PER_SPLIT
    high, guesses = LEVELS[index % len(LEVELS)]
    return {
        "id": f"guess-{split}-{index}",
        "split": split,
        "index": index,
        "low": 1,
        "high": high,
        "max_guesses": guesses,
    }


def own_task(task_spec: JSONObject) -> JSONObject:
    """``task_spec`` as made here. Raises ValueError for any other: a narrower range would be easier."""
    split, index = task_spec.get("split"), task_spec.get("index")
    if split in SPLITS and isinstance(index, int) and 0 <= index < TASKS_PER_SPLIT:
        task = make_task(split, index)
        if dict(task_spec) == task:
            return task
    raise ValueError("not a task of the guess environment; take one from its splits by index")


def hidden_number(task: JSONObject) -> int:
    """The number that ``task`` hides."""
    key = os.environ.get("GUESS_KEY", "guess").encode()
    digest = hmac.new(key, f"{task['split']}/{task['index']}".encode(), sha256).digest()
    low, high = task["low"], task["high"]
    return int(low + int.from_bytes(digest, "big") % (high - low + 1))
