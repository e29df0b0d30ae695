"""Redaction of keys and secrets in error texts, since servers may quote requests."""

from __future__ import annotations

from collections.abc import Iterable

from orsay_protocol.redact import Redactor

__all__ = ["Redact"]


class Redact:
    """Replaces known values in a text, in any common encoding. Its repr shows none of them."""

    def __init__(self, values: Iterable[str | None] = ()) -> None:
        self._values = tuple(value for value in values if value)
        self._redactor: Redactor | None = None

    def also(self, values: Iterable[str]) -> Redact:
        return Redact((*self._values, *values))

    def __call__(self, text: str) -> str:
        if self._redactor is None:  # lazy: most clients never see an error
            self._redactor = Redactor(self._values, mask="***")
        return self._redactor.plain(text)

    def __repr__(self) -> str:
        return f"<Redact of {len(self._values)} values>"
