"""Python programs in fresh processes, such as ``orsay serve``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["start_python"]

ROOT = Path(__file__).parents[2]


def start_python(
    arguments: Sequence[str],
    *,
    cwd: Path | None = ROOT,
    env: Mapping[str, str],
    output: int,
    errors: int,
    start_new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """``python ARGUMENTS`` with its streams on these descriptors."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        stdout=output,
        stderr=errors,
        start_new_session=start_new_session,
    )
