"""Translation of database drivers' errors into JournalDown."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError

from ..errors import JournalDown

__all__ = ["BAD_ROW", "driver_error", "is_about_rows", "journal_down"]

BAD_ROW: Final = (ValueError, TypeError, OverflowError)
"""Errors that Python raises for a value that the driver cannot write, lone surrogates among them."""

_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: (
        "it is locked by another process",
        "end what holds it, or wait until it has finished",
    ),
    sqlite3.SQLITE_LOCKED: ("it is locked", "end what holds it, or wait until it has finished"),
    sqlite3.SQLITE_FULL: ("there is no room left", "free some on that disk, or lower journal_max_bytes"),
    sqlite3.SQLITE_READONLY: ("it cannot be written to", "let this user write to the file and to its folder"),
    sqlite3.SQLITE_PERM: ("it cannot be written to", "let this user write to the file and to its folder"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "let this user write to the file and to its folder"),
    sqlite3.SQLITE_IOERR: ("its disk failed", "see whether the disk is full or broken"),
}
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_POSTGRES: Final = {
    "53100": "free some room on the disk of the database server",
    "28000": "correct the user or the password in the setting journal",
    "28P01": "correct the user or the password in the setting journal",
    "3D000": "create that database, or correct the setting journal",
    "42501": "let this user write to the tables",
    "57014": "see what holds locks on its tables",
    "55P03": "see what holds locks on its tables",
    "25006": "name the server that takes writes",
}
_MESSAGES: Final = {  # authentication errors have no code
    "authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "does not exist": "3D000",
}
_ABOUT_ROWS: Final = ("22", "23")  # data exceptions, broken constraints
_AWAY: Final = "see whether the database server runs and can be reached"


def driver_error(exc: BaseException) -> BaseException:
    """The driver's error: SQLAlchemy's text would contain statements and values."""
    return exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc


def is_about_rows(exc: BaseException) -> bool:
    """True if the rows are invalid, so that a retry would fail again."""
    found = driver_error(exc)
    if isinstance(found, BAD_ROW):
        return True
    if isinstance(found, sqlite3.Error):
        return isinstance(found, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError)
    state = getattr(found, "sqlstate", None)  # an attribute of psycopg, which may not be installed
    if isinstance(state, str):
        return state[:2] in _ABOUT_ROWS
    # refused by the driver: text with NUL, numbers out of range
    return any(each.__module__ == "psycopg" and each.__name__ == "DataError" for each in type(found).__mro__)


def journal_down(exc: BaseException, location: str) -> JournalDown:
    """Translate the error; ``location`` is the journal's, without a password."""
    found = driver_error(exc)
    if isinstance(found, JournalDown):
        return found
    start = f"the journal {location} does not work"
    if isinstance(found, sqlite3.Error):
        code = getattr(found, "sqlite_errorcode", 0) & 0xFF
        if code in _CORRUPT:
            return JournalDown(f"{start}: the file is damaged ({found})", kind="damaged")
        text, hint = _SQLITE.get(code, (str(found), ""))
        return JournalDown(f"{start}: {text}", hint)
    if isinstance(found, OSError) and found.errno in (errno.ENOSPC, errno.EDQUOT):
        text, hint = _SQLITE[sqlite3.SQLITE_FULL]
        return JournalDown(f"{start}: {text}", hint)
    if isinstance(found, OSError):
        return JournalDown(f"{start}: {found.strerror or found}", "check the folder, its owner and its disk")
    if type(found).__module__.partition(".")[0] not in ("psycopg", "psycopg_pool"):
        return JournalDown(
            f"{start}: {type(found).__name__}: {found}",
            "this looks like a bug of Orsay: report it",
            kind="mistake",
        )
    message = " ".join(str(found).split())
    state = getattr(found, "sqlstate", None) or next(
        (each for text, each in _MESSAGES.items() if text in message), ""
    )
    return JournalDown(f"{start}: {message}", _POSTGRES.get(state, _AWAY))
