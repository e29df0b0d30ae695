"""API keys: authentication of requests, and owners of sessions."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping

from pydantic import SecretStr

from .errors import Starting, Unauthorized

__all__ = ["ANYONE", "Keys", "old_name", "short_name"]

ANYONE = ""
"""The owner of every session on a server without keys."""

_PREFIX = "key-"
_SHORT = 8  # hex digits of a name, for people
_ROUNDS = 60_000  # about 20 ms for each key, and for each guess of a key from its name


class Keys:
    """The server's API keys, kept as hashes.

    The name of a key identifies the owner of a session, in memory and in the journal. It is a hash with
    ``salt``, a secret of the journal; None: not known yet, see ``know``.
    """

    def __init__(self, keys: Iterable[SecretStr], salt: bytes | None = None) -> None:
        self.refused = 0
        """Number of rejected requests."""
        self._watchers: list[Callable[[], None]] = []
        self._salt = salt
        self._names: dict[bytes, str] = {}
        self.replace(keys)

    def replace(self, keys: Iterable[SecretStr]) -> None:
        """Accept these keys from now on, and no others."""
        self._digests = tuple(_digest(key.get_secret_value().encode()) for key in keys)
        self.required = bool(self._digests)
        self._names = {digest: name for digest, name in self._names.items() if digest in self._digests}
        for changed in self._watchers:
            changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each ``replace``."""
        self._watchers.append(changed)

    def know(self, salt: bytes) -> None:
        """Set the salt of the names, once."""
        self._salt = salt

    def __bool__(self) -> bool:
        return bool(self._digests)

    @property
    def several(self) -> bool:
        """True with more than one key: limits are then shared among keys."""
        return len(set(self._digests)) > 1

    @property
    def are_named(self) -> bool:
        """True once all keys have names; before that no key is accepted."""
        return self._salt is not None or not self._digests

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """A name for the key that the request carries: ``key-`` and 32 hex digits.

        Takes ``X-API-Key`` or ``Authorization: Bearer``. All keys are compared, each in constant time.
        Raises Unauthorized, and Starting before ``know``.
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
        return self._names.get(digest) or self._name(digest, given)

    def accepts(self, key: str) -> bool:
        """True for one of the server's keys."""
        digest = _digest(key.encode(errors="replace"))
        return any(hmac.compare_digest(digest, known) for known in self._digests)

    def name_of(self, key: SecretStr) -> str:
        """The name of one of the keys. Raises Starting before ``know``."""
        given = key.get_secret_value().encode()
        digest = _digest(given)
        return self._names.get(digest) or self._name(digest, given)

    def _name(self, digest: bytes, key: bytes) -> str:
        if self._salt is None:
            raise Starting("the server was started just now, and still reads its journal")
        name = _PREFIX + hashlib.pbkdf2_hmac("sha256", key, self._salt, _ROUNDS, dklen=16).hex()
        self._names[digest] = name
        return name


def old_name(key: SecretStr) -> str:
    """Name of a key in journals that were written before names had a salt."""
    return _PREFIX + _digest(key.get_secret_value().encode()).hex()[:_SHORT]


def short_name(owner: str) -> str:
    """Abbreviation of an owner's name for display; not unique."""
    return owner[: len(_PREFIX) + _SHORT]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
