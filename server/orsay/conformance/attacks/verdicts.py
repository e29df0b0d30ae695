"""Exceptions that end an attack which did not hold."""

from __future__ import annotations

__all__ = ["Broken", "Lost", "Weak"]


class Broken(Exception):
    """The attack succeeded; the text says what happened."""


class Weak(Exception):
    """The attack showed a weakness that harms only in some cases; the text says what happened."""


class Lost(Exception):
    """A call of the environment had no result; the text says why."""
