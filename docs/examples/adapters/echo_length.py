from typing import Any


def length(step: dict[str, Any]) -> float:
    """A tenth of the length of the text that the environment echoed."""
    result = step["observation"]["result"]
    data = result["data"] if isinstance(result, dict) else result
    return len(data) / 10
