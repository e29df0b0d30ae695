"""Environment classes of the packages ``openreward`` and ``ors``, recognised without importing either.

If such a class exists, its package is loaded; if not, it need not be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

__all__ = ["foreign_base", "to_foreign_candidates"]

_BASES = frozenset({"openreward.environments.environment", "ors.environment"})


def foreign_base(cls: type) -> type | None:
    """The ``Environment`` of another package that ``cls`` derives from, if any."""
    for base in cls.__mro__:
        if base.__module__ in _BASES and base.__name__ == "Environment":
            return base
    return None


def to_foreign_candidates(base: type, candidates: Sequence[BaseModel]) -> list[Any]:
    """Candidates of a group as the package of ``base`` defines them; as they are if it does not."""
    types = sys.modules.get(base.__module__.rpartition(".")[0] + ".types")
    model = getattr(types, "GroupCandidate", None)
    if model is None:
        return list(candidates)
    return [model.model_validate(candidate.model_dump()) for candidate in candidates]
