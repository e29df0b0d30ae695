"""Detection of private files by content, whatever their name: keys, journals, exports, reports."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import IO

from .logins import holds_password_in_url, holds_token
from .names import names_packages, secret_source
from .private_keys import holds_private_key

__all__ = ["secret_content"]

_SMALL_BYTES = 64 * 1024
_LINE_BYTES = 4 * 1024 * 1024

_SQLITE = b"SQLite format 3\0"
_LOGS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")  # of SQLite, before they are put into its file
# Tables, by name: the module that defines them is slow to import.
_JOURNAL = frozenset({"sessions", "calls", "prompts", "journal_version"})
_SEARCH = frozenset({"words", "span", "pending"})
_HEAD = struct.Struct("<II")  # of segments of the write-ahead log: length and checksum
_REPORT = re.compile(
    rb'\s*\{\s*"(?:header"\s*:\s*\{|format"\s*:\s*\d+\s*,\s*"name"\s*:[^{}]{0,4000}?"split"\s*:)', re.DOTALL
)
_EXPORTED = (
    (b'"messages"', b'"rewards"', b'"environment"', b'"task_index"', b'"rollout"', b'"faults"'),
    (b'"sid"', b'"environment"', b'"task_index"', b'"rollout"', b'"end_reason"', b'"replayable"'),
)
"""JSON keys of an episode, and of a trajectory."""
_BEFORE_OBJECT = b"\xef\xbb\xbf \t\r\n["
"""Bytes that may precede the first object: a byte order mark, empty lines, a bracket."""


def secret_content(file: IO[bytes], relpath: str, path: Path, size: int) -> str | None:
    """Reason why this file is left out, or None. Reads little of a large file.

    ``relpath`` is its path in the project, ``path`` its real path.
    """
    head = file.read(_SMALL_BYTES)
    if size <= _SMALL_BYTES and holds_private_key(head):
        return "holds a private key"
    if secret_source(relpath) and holds_token(head):
        return "looks like a secret: it holds a token"
    if names_packages(relpath) and holds_password_in_url(head):
        return "holds a password in a URL"
    if head.startswith(_SQLITE):
        return "is a journal of Orsay" if _is_journal(head, path) else None
    if head.startswith(_LOGS):
        return "is the log of a SQLite database"
    if _is_segment(head):
        return "belongs to a journal of Orsay"
    if _REPORT.match(head) and (b'"summary"' in head or b'"measured"' in head):
        return "is a report of orsay eval"
    begin = head.lstrip(_BEFORE_OBJECT)
    if begin.startswith(b"{"):
        begin = begin if b"\n" in begin else begin + file.read(_LINE_BYTES)
        if any(all(key in begin for key in keys) for keys in _EXPORTED):
            return "is an export of a journal"
    return None


def _is_journal(head: bytes, path: Path) -> bool:
    """True for a journal, recognised by its tables; a damaged one by its CREATE statements."""
    if all(b"CREATE TABLE %s" % name.encode() in head for name in _JOURNAL):
        return True
    # Read-only and immutable: no lock, no log.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        return False
    names = {name for (name,) in rows}
    return names >= _JOURNAL or names >= _SEARCH


def _is_segment(head: bytes) -> bool:
    if len(head) < _HEAD.size or b"SessionOpened" not in head:
        return False
    length, checksum = _HEAD.unpack_from(head)
    return bool(zlib.crc32(head[_HEAD.size : _HEAD.size + length]) == checksum)
