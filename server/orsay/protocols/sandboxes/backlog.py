"""Output of commands that waits for clients that read slowly: how much of it there may be."""

from __future__ import annotations

from collections import Counter

__all__ = ["Backlog"]


class Backlog:
    """Sizes of what waits, in bytes; bounded for each owner and in all."""

    def __init__(self, *, per_owner: int = 128 << 20, in_all: int = 512 << 20) -> None:
        self._per_owner = per_owner
        self._in_all = in_all
        self._waiting: Counter[str] = Counter()
        self._sum = 0

    def add(self, owner: str, size: int) -> bool:
        """Count output that is to wait; False where there is no room for it."""
        if self._waiting[owner] + size > self._per_owner or self._sum + size > self._in_all:
            return False
        self._waiting[owner] += size
        self._sum += size
        return True

    def remove(self, owner: str, size: int) -> None:
        """Note that it waits no longer."""
        self._sum -= size
        self._waiting[owner] -= size
        if not self._waiting[owner]:
            del self._waiting[owner]
