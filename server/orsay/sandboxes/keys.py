"""Keys for the sandboxes of one session each: they reach nothing else, and end with the session."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Mapping

__all__ = ["SandboxKeys"]

_PREFIX = "orsay-session-"
_OWNER = "session-"


class SandboxKeys:
    """The keys, as hashes, each with the owner of the sandboxes that are made with it."""

    def __init__(self) -> None:
        self._owners: dict[bytes, str] = {}
        self._numbers = itertools.count(1)

    def issue(self) -> tuple[str, str]:
        """A new key, and its owner's name."""
        key = _PREFIX + secrets.token_urlsafe(24)
        owner = f"{_OWNER}{next(self._numbers)}"
        self._owners[_digest(key.encode())] = owner
        return key, owner

    def revoke(self, key: str) -> None:
        """Accept a key no longer; safe to call twice."""
        self._owners.pop(_digest(key.encode()), None)

    @staticmethod
    def is_of_session(owner: str) -> bool:
        """True for an owner whose sandboxes end with a session."""
        return owner.startswith(_OWNER)

    def owner(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The owner of the key that a request carries as ``X-API-Key``; None for any other key."""
        return self._owners.get(_digest(headers.get(b"x-api-key", b"").strip()))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
