"""A program at a terminal, and all that it writes there."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["at_terminal"]

_LIMIT_S = 60.0


def at_terminal(command: Sequence[str], variables: Mapping[str, str]) -> tuple[bytes, int]:
    """What a command writes to a terminal of its own, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # how Linux reports that nobody writes any more
        pass
    finally:
        os.close(ours)
        code = process.wait(_LIMIT_S)
    return b"".join(parts), code
