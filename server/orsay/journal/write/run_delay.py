"""Run delay of a thread: the time that it was ready to run and had no core.

It tells a slow disk from a busy machine: of a write that takes long, it is the part without the disk.
"""

from __future__ import annotations

import os

__all__ = ["RunDelay"]

_NS = 1e-9
_FIELD = 1  # time on a core, time waiting for one, number of turns


class RunDelay:
    """Run delay of the thread that makes it.

    Linux counts it, with the pauses of a CPU quota: Documentation/scheduler/sched-stats.rst. The file stays
    open: then a reading takes two microseconds, and needs no descriptor when there are none left.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:  # another system
            return

    def total_s(self) -> float:
        """Run delay since the thread began, in seconds; 0.0 where the system does not count it."""
        if self._file is None:
            return 0.0
        try:
            return int(os.pread(self._file, 80, 0).split()[_FIELD]) * _NS
        except (OSError, ValueError, IndexError):
            self.close()
            return 0.0

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
