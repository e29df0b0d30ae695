"""Labels that a client gives its sessions, parsed from the header X-Orsay-Run.

The header is the name of a run, or a JSON object with ``run``, ``step`` (integer) and ``rollout``; its other
fields are kept unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from orsay_protocol.texts import well_formed

__all__ = ["Labels", "parse_labels"]

_LONGEST = 200  # characters of a name
_OURS = ("run", "step", "rollout")


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of a session. ``run`` is None without one; ``other`` is JSON of all labels but these three."""

    run: str | None = None
    step: int | None = None
    rollout: str | None = None
    other: str | None = None


_NONE = Labels()


def parse_labels(header: str | None) -> Labels:
    """Parse the header; never raises: text that is no JSON object is the name of the run."""
    if not header:
        return _NONE
    if not header.startswith("{"):
        return Labels(run=header[:_LONGEST])
    try:
        found = json.loads(header)
        other = {name: value for name, value in found.items() if name not in _OURS}
        run, rollout = _name(found.get("run")), _name(found.get("rollout"))
        kept = json.dumps(other) if other else None
    except (ValueError, RecursionError):  # truncated, not JSON, or nested too deeply
        return Labels(run=header[:_LONGEST])
    step = found.get("step")
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    whole = isinstance(step, int) and not isinstance(step, bool) and abs(step) < 2**31
    return Labels(run=run, step=step if whole else None, rollout=rollout, other=kept)


def _name(found: object) -> str | None:
    return None if found is None else well_formed(str(found))[:_LONGEST]
