"""Labels of a run, as the header X-Orsay-Run carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["RunLabels", "run_header"]

RunLabels: TypeAlias = str | Mapping[str, str | int | float | bool | None]


def run_header(labels: RunLabels) -> str:
    """Header value: a string unchanged, a mapping as JSON. Raises ValueError if no header can hold it."""
    if not isinstance(labels, str):
        return json.dumps(dict(labels), separators=(",", ":"), allow_nan=False)
    if not labels.isascii() or not labels.isprintable():
        raise ValueError("run_labels as a string must be printable ASCII; a mapping may hold any text")
    return labels
