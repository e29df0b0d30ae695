"""Run delay of the calling thread: the time that it was ready to run and had no core.

It tells a slow disk from a busy machine: of a write that takes long, it is the part without the disk.
"""

from __future__ import annotations

__all__ = ["run_delay_s"]

_NS = 1e-9
_FIELD = 1  # time on a core, time waiting for one, number of turns


def run_delay_s() -> float:
    """Run delay since the thread began, in seconds; 0.0 where the system does not count it.

    Linux counts it, with the pauses of a CPU quota: Documentation/scheduler/sched-stats.rst.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[_FIELD]) * _NS
    except (OSError, ValueError, IndexError):
        return 0.0
