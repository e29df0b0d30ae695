"""Environment classes of the packages ``openreward`` and ``ors``, recognised without importing either.

If such a class exists, its package is loaded; if not, it need not be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

__all__ = ["foreign_base", "foreign_internals", "to_foreign_candidates"]

_BASES = frozenset({"openreward.environments.environment", "ors.environment"})


def foreign_base(cls: type) -> type | None:
    """The ``Environment`` of another package that ``cls`` derives from, if any."""
    for base in cls.__mro__:
        if base.__module__ in _BASES and base.__name__ == "Environment":
            return base
    return None


def foreign_internals(base: type) -> list[str]:
    """Internal methods of ``base`` that run calls; a class that overrides one cannot be hosted."""
    if base.__module__ not in _BASES:
        return []
    return [name for name in ("_call_tool", "_invoke_tool_fn", "_run_tool_fn") if hasattr(base, name)]


def to_foreign_candidates(base: type, candidates: Sequence[BaseModel]) -> list[Any]:
    """Candidates of a group in the models of the package of ``base``, if it has such models."""
    types = sys.modules.get(base.__module__.rpartition(".")[0] + ".types")
    model = getattr(types, "GroupCandidate", None)
    if model is None:
        return list(candidates)
    return [model.model_validate(candidate.model_dump()) for candidate in candidates]
