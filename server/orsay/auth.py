"""API keys: who may come in, and whose session is whose."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from pydantic import SecretStr

from .errors import Unauthorized

__all__ = ["ANYONE", "Keys"]

ANYONE = ""
"""The owner of every session on a server without keys."""


class Keys:
    """The server's API keys, kept as hashes."""

    def __init__(self, keys: Iterable[SecretStr]) -> None:
        self.refused = 0
        """Requests that were not let in."""
        self.replace(keys)

    def replace(self, keys: Iterable[SecretStr]) -> None:
        """Let in who sends one of these from now on, and nobody else."""
        self._digests = tuple(_digest(key.get_secret_value().encode()) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """A name for the key that the request carries: ``key-`` and a few hex digits of its hash.

        Takes ``X-API-Key`` or ``Authorization: Bearer``. All keys are compared, each in constant time.
        Raises Unauthorized.
        """
        if not self._digests:
            return ANYONE
        given = headers.get(b"x-api-key", b"").strip()
        if not given:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            given = token.strip() if scheme.lower() == b"bearer" else b""
        if not given:
            self.refused += 1
            raise Unauthorized("this server needs an API key: send it as X-API-Key or Authorization: Bearer")
        digest = _digest(given)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            self.refused += 1
            raise Unauthorized("the API key is not known to this server")
        return f"key-{digest.hex()[:8]}"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
