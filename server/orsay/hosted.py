"""``host``, as ``from orsay import host`` gives it."""

from __future__ import annotations

from .authoring.hosted import host

__all__ = ["host"]
