"""Names of trial runs: sessions of ``orsay check``, ``orsay play`` and the console's playground.

Their rewards do not measure a model, so no metric over several runs counts them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

__all__ = ["TRIAL_NAMES", "TRIAL_PREFIXES", "trial_run"]

TRIAL_NAMES = ("playground",)
"""The playground's run: see ``console/src/ors/requests.ts``."""
TRIAL_PREFIXES = ("orsay check ", "orsay play ")
"""Beginnings of the names of other trial runs; a day follows."""


def trial_run(verb: Literal["check", "play"]) -> str:
    """The run of today's sessions of that verb of the command line: the whole header."""
    return f"orsay {verb} {datetime.now(UTC):%Y-%m-%d}"
