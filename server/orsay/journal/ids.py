"""Ids of sessions, calls and evaluations: 63-bit integers that grow with time, made without the database.

Snowflake ids: milliseconds since 2020, 12 random bits of the process and a counter of 10 bits, so that
several servers can share a journal. In JSON and URLs an id is a decimal string: JavaScript would round it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

__all__ = ["Ids", "moment_of", "new_id"]

_EPOCH_MS = 1_577_836_800_000  # 2020-01-01
_COUNTER_BITS = 10
_COUNTER = (1 << _COUNTER_BITS) - 1
_SHIFT = _COUNTER_BITS + 12


class Ids:
    """Generator of one process's ids, strictly increasing even if the clock goes back."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.become_another()
        self._tick = 0  # milliseconds and counter

    def become_another(self) -> None:
        """Draw new random bits: a forked process must not repeat the ids of its parent."""
        self._process = secrets.randbits(12) << _COUNTER_BITS

    def new(self) -> int:
        """A new id; if the counter of a millisecond overflows, the next one is used. For one thread."""
        tick = self._tick + 1
        now = int(self._clock() * 1000) - _EPOCH_MS << _COUNTER_BITS
        self._tick = tick = tick if tick > now else now
        return tick >> _COUNTER_BITS << _SHIFT | self._process | tick & _COUNTER


def moment_of(id: int) -> float:
    """Time at which the id was made: seconds since 1970, to the millisecond."""
    return ((id >> _SHIFT) + _EPOCH_MS) / 1000


_ids = Ids()
if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(after_in_child=_ids.become_another)
new_id = _ids.new
"""Make an id; for the thread of the event loop."""
