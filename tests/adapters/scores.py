"""A reward of one's own for an environment of OpenEnv."""

from collections.abc import Mapping
from typing import Any


def length(step: Mapping[str, Any]) -> float:
    """A tenth of the length of what was echoed, as the echo environment once paid it."""
    result = step["observation"]["result"]
    data = result["data"] if isinstance(result, dict) else result
    return len(data["message"] if isinstance(data, dict) else data) / 10
