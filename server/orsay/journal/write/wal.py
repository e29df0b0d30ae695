"""Write-ahead log of a SQLite journal: the newest rows, in files beside it, checkpointed in large batches.

A commit of SQLite writes each page that it touched, and each running session touches pages of its own. It
also needs a thread, and switching threads costs more than the rest. Appending to a file takes microseconds.

A segment of the log is a file with the format of its rows, then each commit as ``wal_codec`` packs it,
preceded by length and checksum. The process that uses a segment holds a lock on it. A process that is killed
leaves its segments behind: the next one that opens the journal replays them into the tables.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import marshal
import os
import secrets
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ...logs import get_logger
from ..records import Row
from . import wal_codec
from .batch import Batch

if sys.platform != "win32":
    import fcntl

__all__ = ["AGE_S", "IS_HERE", "MOST_ROWS", "Segment", "WriteAheadLog", "left_behind", "wait_for_living"]

IS_HERE = sys.platform != "win32"
"""False on systems without the locks that separate files in use from files left behind."""

_MARK = "-recent-"
AGE_S = 1.0
"""Longest time that rows stay in the log only."""

MOST_ROWS = 2_000
"""Number of rows that the tables should take at once."""

_MOST_FILES = 16  # handed over and not in the tables yet; beyond that, rows bypass the log
_HEAD = struct.Struct("<II")
_FORM = marshal.dumps(wal_codec.FORM)
_START = _HEAD.size + len(_FORM)  # of the first rows

log = get_logger("journal")


class Segment:
    """Segment of the log: a file that takes rows, and the same bytes in memory, for the tables.

    Raises OSError if it cannot be made. For one thread at a time.
    """

    def __init__(self, journal: Path) -> None:
        self.rows = 0
        self._commits: list[bytes] = []  # the first of them is the format
        self._end = 0
        while (file := self._locked(journal)) is None:
            pass
        self._file = file
        try:
            self.append(_FORM, 0)
        except OSError:  # such as a full disk, where each attempt would leave a file
            self.close()
            raise

    def append(self, data: bytes, rows: int) -> None:
        """Commit ``rows`` rows, packed by ``wal_codec``. Raises OSError, without committing any.

        The next append overwrites a partial write.
        """
        whole = _HEAD.pack(len(data), zlib.crc32(data)) + data
        if os.pwrite(self._file, whole, self._end) < len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += len(whole)
        self._commits.append(data)
        self.rows += rows

    def batch(self) -> Batch:
        """The rows for the tables."""
        batch = Batch()
        for data in self._commits[1:]:
            wal_codec.add(batch, data)
        return batch

    def clear(self) -> None:
        """Remove the rows, which are in the tables now."""
        os.ftruncate(self._file, _START)
        self._end = _START
        self._commits = self._commits[:1]
        self.rows = 0

    @property
    def is_there(self) -> bool:
        """False once somebody removed the file."""
        return os.fstat(self._file).st_nlink > 0

    def close(self) -> None:
        """Close the file, and remove it if it has no rows."""
        if not self.rows:
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _locked(self, journal: Path) -> int | None:
        """Make and lock a file; None if another process took it for one that was left behind."""
        self._path = journal.with_name(f"{journal.name}{_MARK}{secrets.token_hex(4)}")
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                return file
        except BlockingIOError:
            pass
        except OSError:
            self._path.unlink(missing_ok=True)
            os.close(file)
            raise
        os.close(file)
        return None


class WriteAheadLog:
    """Write-ahead log: one segment that takes rows, and others on their way into the tables.

    Its methods are for the event loop's thread, except ``give_back``, which is for the writer thread.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._taking: Segment | None = None
        self._spare: deque[Segment] = deque()
        self._handed_over = 0  # counted by the loop's thread alone
        self._given_back = 0  # and by the writer thread

    @property
    def on_their_way(self) -> int:
        """Number of segments that were handed over and not given back yet."""
        return self._handed_over - self._given_back

    @property
    def rows(self) -> int:
        """Number of rows that were not handed over yet."""
        return 0 if self._taking is None else self._taking.rows

    def append(self, rows: Sequence[tuple[Row, Any]]) -> int:
        """Commit the rows (first of each pair) together. Returns the number of rows to hand over.

        Returns 0, without a commit, if a row can be validated only by the tables, or if these do not keep up.
        Raises OSError, without a commit.
        """
        data = wal_codec.pack(rows) if self._handed_over - self._given_back < _MOST_FILES else None
        if data is None:
            return 0
        segment = self._taking
        if segment is None:
            segment = self._taking = self._next()
        segment.append(data, len(rows))
        return segment.rows

    def hand_over(self) -> Segment | None:
        """Detach the segment with the rows for the tables; None without rows."""
        if not self.rows:
            return None
        segment, self._taking = self._taking, None
        self._handed_over += 1
        return segment

    def give_back(self, segment: Segment) -> None:
        """Take back a segment whose rows are in the tables. Raises OSError."""
        segment.clear()
        self._spare.append(segment)
        self._given_back += 1

    def close(self) -> None:
        """Close the segments, and remove empty ones; after the end of the writer thread."""
        if self._taking is not None:
            self._taking.close()
            self._taking = None
        while self._spare:
            self._spare.popleft().close()

    def _next(self) -> Segment:
        while self._spare:
            if (segment := self._spare.popleft()).is_there:
                return segment
            segment.close()
        return Segment(self._journal)


@contextlib.contextmanager
def left_behind(journal: Path) -> Iterator[list[Batch]]:
    """Batches of killed writers; their files are removed at the end of a successful block. Raises OSError."""
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(contextlib.closing(file))
            for path in _files(journal)
            if (file := _of_the_dead(path)) is not None
        ]
        read = [(Path(file.name), _batch(file)) for file in found]
        yield [batch for _, batch in read if batch is not None]
        for path, batch in read:
            if batch is None:
                log.warning("journal_wal_not_read", file=str(path), hint="another version of Orsay wrote it")
            else:
                path.unlink(missing_ok=True)


def wait_for_living(journal: Path, bound_s: float = 2.0) -> None:
    """Wait, for a bounded time, until other processes have moved their committed rows into the tables."""
    until = time.monotonic() + bound_s
    waiting = {path: size for path in _files(journal) if (size := _size(path)) > _START}
    while waiting and time.monotonic() < until:
        time.sleep(AGE_S / 10)
        waiting = {path: size for path, size in waiting.items() if _size(path) >= size}


def _files(journal: Path) -> list[Path]:
    return sorted(journal.parent.glob(f"{glob.escape(journal.name)}{_MARK}*"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _of_the_dead(path: Path) -> BinaryIO | None:
    """Open and lock the file; None if a live process holds it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # removed meanwhile
        return None
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
    file.close()
    return None


def _batch(file: BinaryIO) -> Batch | None:
    """Rows of the file, up to the first incomplete part; None for an unknown format."""
    batch = Batch()
    form: Any = wal_codec.FORM
    for number, data in enumerate(_parts(file.read())):
        if number:
            wal_codec.add(batch, data, form)
        elif not wal_codec.reads(form := marshal.loads(data)):
            return None
    return batch


def _parts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        part = data[at : at + length]
        if len(part) < length or zlib.crc32(part) != checksum:
            return
        yield part
        at += length
