"""Redaction of the keys for sandboxes, which a session's own redactor knows nothing of."""

from __future__ import annotations

from orsay_protocol.redact import NOTHING, Redactor

from ..sandboxes.keys import may_hold_keys, without_keys

__all__ = ["hiding_keys"]


def hiding_keys(hide: Redactor | None, *texts: bytes) -> Redactor | None:
    """Redactor for a row with these texts: ``hide``, and one of keys too where there may be any.

    Rows without secrets are written as they came, which costs less.
    """
    return _WithKeys(hide or NOTHING) if any(map(may_hold_keys, texts)) else hide


class _WithKeys(Redactor):
    """Removes what has the form of a key, besides the secrets of ``hide``."""

    __slots__ = ("_hide",)

    def __init__(self, hide: Redactor) -> None:
        super().__init__(())
        self._hide = hide

    def __bool__(self) -> bool:
        return True

    def plain(self, text: str) -> str:
        return without_keys(self._hide.plain(text))

    def json(self, text: str) -> str:
        return without_keys(self._hide.json(text))

    def hides(self, number: int | float) -> bool:
        return self._hide.hides(number)
