"""Tasks, and the code word of each, which the task itself does not contain.

There are five doors and five words, and each of the 25 pairs is one task: 20 for training and 5 held out, so
that memorization does not help. Each door has four words in the training tasks and the fifth in the held-out
one: a memorized word is right in a quarter of the training tasks, and in no held-out task.
"""

from __future__ import annotations

from orsay import JSONObject

__all__ = ["DOORS", "TASKS", "WORDS", "code_word", "own_task"]

WORDS = ("amber", "birch", "cedar", "delta", "ember")
DOORS = len(WORDS)

_SIZES = {"train": DOORS * (DOORS - 1), "test": DOORS}
_FIRST_SHIFT = {"train": 1, "test": 0}

TASKS: dict[str, list[JSONObject]] = {
    split: [
        {"id": f"doors-{split}-{index}", "split": split, "index": index, "door": 1 + index % DOORS}
        for index in range(size)
    ]
    for split, size in _SIZES.items()
}
"""20 tasks in ``train``, 5 in ``test``."""


def own_task(task_spec: JSONObject) -> JSONObject:
    """``task_spec`` as listed here. Raises ValueError for any other: its door would have no word."""
    for tasks in TASKS.values():
        for task in tasks:
            if task == dict(task_spec):
                return task
    raise ValueError("not a task of the doors environment; take one from its splits by index")


def code_word(task: JSONObject) -> str:
    """The word that opens the door of ``task``."""
    shift = _FIRST_SHIFT[task["split"]] + task["index"] // DOORS
    return WORDS[(task["door"] - 1 + shift) % DOORS]
