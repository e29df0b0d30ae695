"""Tombstones: reasons why sessions ended, kept for a while after their deletion.

A tombstone is a few bytes in one flat buffer, not an object: objects that outlive a session would fragment
the heap, so that the memory of ended sessions could not be returned to the system.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple, TypeAlias

from orsay_protocol.faults import FaultClass

__all__ = ["EndReason", "Tombstone", "Tombstones", "sentence"]

EndReason: TypeAlias = Literal["deleted", "idle", "lifetime", "shutdown", "console"]
"""Reason of an end without a fault: a label of metrics, from which the sentence for clients is made."""

_KEY = struct.Struct("<q")
_RECORD = struct.Struct("<Id")
_SENTENCES: dict[EndReason, str] = {
    "deleted": "Session deleted",
    "idle": "Session expired: idle for {:g} s",
    "lifetime": "Session expired: older than {:g} s",
    "shutdown": "the server is shutting down",
    "console": "Session ended from the console",
}


def sentence(reason: EndReason, limit_s: float = 0.0) -> str:
    """The reason in words; ``limit_s`` is the limit that an expired session reached."""
    return _SENTENCES[reason].format(limit_s)


class Tombstone(NamedTuple):
    """Reason why a session ended; one object for all sessions with the same reason."""

    reason: str
    fault: FaultClass


class Tombstones:
    """Ring buffer of the last ``size`` sessions that ended, each kept for ``memory_s`` seconds.

    The key is a hash of the session id and its owner, so that no other owner finds it.
    """

    def __init__(self, *, memory_s: float, size: int = 20_000) -> None:
        self._memory_s = memory_s
        self._size = size
        self._keys = bytearray()
        self._records = bytearray()
        self._next = 0
        self._reasons: dict[Tombstone, int] = {}

    def add(self, sid: str, owner: str, tombstone: Tombstone, now: float) -> None:
        """Add a tombstone, in place of the oldest if the buffer is full."""
        key = _key(sid, owner)
        reason = self._reasons.setdefault(tombstone, len(self._reasons))
        record = _RECORD.pack(reason, now + self._memory_s)
        if len(self._keys) < self._size * _KEY.size:
            self._keys += key
            self._records += record
            return
        at = self._next
        self._keys[at * _KEY.size : (at + 1) * _KEY.size] = key
        self._records[at * _RECORD.size : (at + 1) * _RECORD.size] = record
        self._next = (at + 1) % self._size

    def find(self, sid: str, owner: str, now: float) -> Tombstone | None:
        """The tombstone of that owner's session, the latest of several; None if it is not kept."""
        key = _key(sid, owner)
        at = self._keys.rfind(key)
        while at >= 0 and at % _KEY.size:  # bytes of two neighbours
            at = self._keys.rfind(key, 0, at + _KEY.size - 1)
        if at < 0:
            return None
        number, expires_at = _RECORD.unpack_from(self._records, at // _KEY.size * _RECORD.size)
        if expires_at < now:
            return None
        return next(stone for stone, reason in self._reasons.items() if reason == number)

    def expire(self, now: float) -> None:
        """Remove all tombstones once the latest has expired."""
        if not self._keys:
            return
        last = (self._next or len(self._keys) // _KEY.size) - 1
        _, expires_at = _RECORD.unpack_from(self._records, last * _RECORD.size)
        if expires_at < now:
            self._keys.clear()
            self._records.clear()
            self._reasons.clear()
            self._next = 0

    def __len__(self) -> int:
        return len(self._keys) // _KEY.size


def _key(sid: str, owner: str) -> bytes:
    return _KEY.pack(hash((sid, owner)))
