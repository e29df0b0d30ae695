"""Background load on all cores, for measurements on a busy machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from .machine import cores, on_core

__all__ = ["HOGS", "busy_machine"]

HOGS = 2
_SPIN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def busy_machine(*, limit_s: float) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One hog on the core of the server and one on that of the generator, at the priority of both.

    They end with the ``with`` block, and by themselves after ``limit_s``.
    """
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        for core in cores():
            with on_core(core):
                hogs.append(subprocess.Popen([sys.executable, "-c", _SPIN, str(limit_s)]))
        yield hogs
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
