"""Player of a child process, by the spec of its parent. It imports no more than that needs."""

from __future__ import annotations

from typing import Any

from orsay_trl import EnvironmentSpec

__all__ = ["play"]


def play(spec: EnvironmentSpec, row: dict[str, Any], answer: Any) -> None:
    """Say the right word, and put the reward into the queue ``answer``."""
    environment: Any = spec.environment_factory()
    environment.reset(**row)
    environment.say(word=row["word"])
    answer.put(environment.reward)
    spec.close()
