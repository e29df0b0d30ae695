"""Exceptions that end a check which did not pass."""

from __future__ import annotations

__all__ = ["Failed", "NotSupported", "Unreachable", "expect"]


class Failed(AssertionError):
    """The server deviates from the sentence of the check; the text describes the deviation."""


class NotSupported(Exception):
    """The check does not apply: the server lacks the feature that the text names."""


class Unreachable(Exception):
    """No ORS server answers at that URL; the text describes what happened instead."""


def expect(condition: object, otherwise: str) -> None:
    """Raises Failed with ``otherwise`` unless ``condition`` holds."""
    if not condition:
        raise Failed(otherwise)
