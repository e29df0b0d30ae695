"""Rows of a trainer's dataset: an empty user message, which the environment's prompt joins, and the task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["RESERVED_COLUMNS", "columns", "for_rollouts", "seed_of", "to_dataset"]

RESERVED_COLUMNS = (
    *("prompt", "task_index", "task_split", "task_spec", "seed", "environment"),
    # TRL uses these columns as images of the prompt, or as arguments of reward functions.
    *("image", "images", "prompts", "completion", "completions", "completion_ids", "environments"),
    *("trainer_state", "log_extra", "log_metric", "env_reward"),
)
"""Reserved column names, which fields of tasks cannot use."""


def columns(
    split: str,
    indices: Sequence[int],
    specs: Sequence[Mapping[str, Any]] | None,
    *,
    metadata: bool,
    seed: int,
    seed_field: str | None,
) -> dict[str, list[Any]]:
    """Columns of a split's tasks; ``specs`` may be None without ``metadata`` and ``seed_field``.

    With ``seed_field`` there are ``seed`` and ``task_spec`` too: the task's spec as JSON, the seed in it.
    """
    found: dict[str, list[Any]] = {
        "prompt": [[{"role": "user", "content": ""}] for _ in indices],
        "task_index": list(indices),
        "task_split": [split] * len(indices),
    }
    if seed_field is not None and specs is not None:
        found["seed"] = [seed_of(seed, split, index) for index in indices]
        found["task_spec"] = [
            json.dumps({**spec, seed_field: number})
            for spec, number in zip(specs, found["seed"], strict=True)
        ]
    if metadata and specs is not None:
        keys = sorted({key for spec in specs for key in spec} - set(RESERVED_COLUMNS))
        for key in keys:
            found[key] = [spec.get(key) for spec in specs]
    return found


def seed_of(seed: int, split: str, index: int) -> int:
    """The seed of a task's group: the same for all its rollouts, another for every task. Below 2**31."""
    digest = hashlib.sha256(f"{seed}:{split}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def for_rollouts(found: Mapping[str, Sequence[Any]], **more: Any) -> dict[str, Sequence[Any]]:
    """The same rows with the task in the message: ``task``, as JSON."""
    keys = [key for key in ("environment", "task_split", "task_index", "task_spec") if key in found]
    tasks = [
        json.dumps({**dict(zip(keys, values, strict=True)), **more})
        for values in zip(*(found[key] for key in keys), strict=True)
    ]
    prompts = [[{"role": "user", "content": "", "task": task}] for task in tasks]
    return {**found, "prompt": prompts}


def to_dataset(found: Mapping[str, Sequence[Any]]) -> Any:
    """A ``datasets.Dataset``; a column whose values have no common type holds them as JSON texts."""
    import pyarrow
    from datasets import Dataset  # an extra; pyarrow comes with it

    tidy: dict[str, Sequence[Any]] = {}
    for name, values in found.items():
        try:
            pyarrow.array(list(values))
            tidy[name] = values
        except (
            pyarrow.ArrowInvalid,
            pyarrow.ArrowTypeError,
            pyarrow.ArrowNotImplementedError,
            OverflowError,
        ):
            tidy[name] = [None if value is None else json.dumps(value) for value in values]
    return Dataset.from_dict(tidy)
