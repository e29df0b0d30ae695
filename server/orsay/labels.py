"""What a client calls its sessions: the header X-Orsay-Run, taken apart.

The header is the name of a run, or a JSON object with ``run``, ``step`` (integer) and ``rollout``; whatever
else it holds is kept as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Labels", "parse_labels"]

_LONGEST = 200  # characters of a name


@dataclass(frozen=True, slots=True)
class Labels:
    """``run`` is None when the client named none. ``other`` is JSON of the labels beside these three."""

    run: str | None = None
    step: int | None = None
    rollout: str | None = None
    other: str | None = None


def parse_labels(header: str | None) -> Labels:
    """Never raises: what cannot be read as labels is the name of the run."""
    if not header:
        return Labels()
    if not header.startswith("{"):
        return Labels(run=header[:_LONGEST])
    try:
        found = json.loads(header)
    except ValueError:  # cut, or never JSON
        return Labels(run=header[:_LONGEST])
    step, run, rollout = found.pop("step", None), found.pop("run", None), found.pop("rollout", None)
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    whole = isinstance(step, int) and not isinstance(step, bool) and abs(step) < 2**31
    return Labels(
        run=None if run is None else str(run)[:_LONGEST],
        step=step if whole else None,
        rollout=None if rollout is None else str(rollout)[:_LONGEST],
        other=json.dumps(found) if found else None,
    )
