"""Exchange of values between the processes that train together."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["everywhere"]


def everywhere(value: Any) -> list[Any]:
    """All-gather: the value of each process, by rank; a collective call."""
    distributed = sys.modules.get("torch.distributed")  # without torch there are no other processes
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return [value]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found
