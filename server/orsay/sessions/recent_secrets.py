"""The secrets of the newest sessions of each owner, for texts that come later from the same client."""

from __future__ import annotations

from collections import OrderedDict

from orsay_protocol.redact import Redactor, latest

__all__ = ["RecentSecrets"]

_OWNERS = 1_000


class RecentSecrets:
    """Redactors by owner, as many as are affordable for each text, also of sessions that ended."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, tuple[Redactor, ...]] = OrderedDict()

    def remember(self, owner: str, hide: Redactor) -> None:
        if not hide:
            return
        self._by_owner[owner] = latest((hide, *self._by_owner.pop(owner, ())))
        if len(self._by_owner) > _OWNERS:
            self._by_owner.popitem(last=False)

    def of(self, owner: str) -> tuple[Redactor, ...]:
        return self._by_owner.get(owner, ())
