"""Tasks, and the word that opens the door of each; a task itself does not tell it.

Doors and words are arranged so that nothing but looking helps. Each door and each word comes twice in the
training tasks, always in another pair, and the held-out pairs of doors and words are none of these: who opens
doors by heart is right half of the time in training at best, and never on held-out tasks.
"""

from __future__ import annotations

from orsay import JSONObject

__all__ = ["DOORS", "TASKS", "WORDS", "code_word", "own_task"]

WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "hazel", "ivory", "jade")
DOORS = len(WORDS)

_SIZES = {"train": 2 * DOORS, "test": 5}
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
