"""Keys for the sandboxes of one session each: they reach nothing else, and end with the session."""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
from collections.abc import Mapping

from .events import Tenant

__all__ = ["SandboxKeys", "may_hold_keys", "without_keys", "without_keys_in"]

_PREFIX = "orsay-session-"
_OWNER = "session-"
_ANY = re.compile(rf"{_PREFIX}[\w-]+", re.ASCII)
_ANY_IN_BYTES = re.compile(_ANY.pattern.encode())
_MASK = "[secret]"
_BETWEEN = b"\r\n\r\nevent: "
_BEGINNINGS = tuple(_PREFIX[:length].encode() for length in range(1, len(_PREFIX)))


def without_keys(text: str) -> str:
    """The text with a mark in place of each key, and of each beginning of one."""
    return _ANY.sub(_MASK, text)


def without_keys_in(data: bytes) -> bytes:
    """The same for bytes."""
    return _ANY_IN_BYTES.sub(_MASK.encode(), data)


def may_hold_keys(wire: bytes) -> bool:
    """False for JSON, or events with pieces of it, without any key; quick, also for much of it."""
    if _PREFIX.encode() in wire:
        return True
    at = wire.find(_BETWEEN)
    while at >= 0:
        if wire.endswith(_BEGINNINGS, 0, at):  # it may be in two pieces
            return True
        at = wire.find(_BETWEEN, at + len(_BETWEEN))
    return False


class SandboxKeys:
    """The keys, as hashes, each with the owner of the sandboxes that are made with it."""

    def __init__(self) -> None:
        self._owners: dict[bytes, str] = {}
        self._tenants: dict[str, Tenant] = {}
        self._numbers = itertools.count(1)

    def issue(self, tenant: Tenant | None = None) -> tuple[str, str]:
        """A new key, and its owner's name; ``tenant`` is the session that it is for."""
        key = _PREFIX + secrets.token_urlsafe(24)
        owner = f"{_OWNER}{next(self._numbers)}"
        self._owners[_digest(key.encode())] = owner
        if tenant is not None:
            self._tenants[owner] = tenant
        return key, owner

    def revoke(self, key: str) -> None:
        """Accept a key no longer; safe to call twice."""
        owner = self._owners.pop(_digest(key.encode()), "")
        self._tenants.pop(owner, None)

    def tenant(self, owner: str) -> Tenant | None:
        """The session of that owner's key, while it is valid."""
        return self._tenants.get(owner)

    @staticmethod
    def is_of_session(owner: str) -> bool:
        """True for an owner whose sandboxes end with a session."""
        return owner.startswith(_OWNER)

    def owner(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The owner of the key that a request carries as ``X-API-Key``; None for any other key."""
        return self._owners.get(_digest(headers.get(b"x-api-key", b"").strip()))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
