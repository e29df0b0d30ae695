"""Options of the journal: its URL, durability and bounds, from the settings ``journal*``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ..errors import ConfigError
from ..settings import Settings, check_journal, shown_journal

__all__ = ["AUTO", "OFF", "JournalOptions", "journal_url", "options_from", "shown"]

AUTO = "auto"
OFF = "off"
_FOLDER = ".orsay"
_FILE = "journal.db"


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """A journal that is on. ``url`` is SQLAlchemy's, with our driver; ``repr`` does not show its password.

    The bounds are those of retention; None is no bound.
    """

    url: URL
    durability: Literal["process", "fsync"] = "process"
    required: bool = False
    max_age_days: float | None = None
    max_sessions: int | None = None
    max_bytes: int | None = None

    @property
    def path(self) -> Path | None:
        """The file, for SQLite."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None


def options_from(settings: Settings) -> JournalOptions | None:
    """Options from the settings; None when the journal is off. Raises ConfigError."""
    if settings.journal == OFF:
        return None
    return JournalOptions(
        journal_url(settings.journal),
        settings.journal_durability,
        settings.journal_required,
        settings.journal_max_age_days,
        settings.journal_max_sessions,
        settings.journal_max_bytes or None,
    )


def journal_url(text: str) -> URL:
    """The URL of a location (``auto``, a path or a URL), with an absolute path. Raises ConfigError."""
    try:
        check_journal(text)
    except ValueError as exc:
        raise ConfigError(f"journal: {exc}") from None
    if text == AUTO:
        return _sqlite(Path(_FOLDER) / _FILE)
    if "://" not in text:
        return _sqlite(Path(text).expanduser())
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"journal: {shown_journal(text)} cannot be read as a URL") from None
    if url.drivername == "sqlite":
        return _sqlite(Path(url.database or "").expanduser())
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError("a journal in PostgreSQL needs psycopg: pip install 'orsay[postgres]'")
    if "password" in url.query:  # messages would show it
        url = url.set(password=str(url.query["password"])).difference_update_query(["password"])
    return url.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """The location for logs and messages: a path, or a URL without password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def _sqlite(path: Path) -> URL:
    return URL.create("sqlite", database=str(path.absolute()))
