"""Logging as it was before a test configured it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import structlog

__all__ = ["restored_logging"]


def restored_logging() -> Iterator[None]:
    """For a fixture: put handlers and levels back."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
