"""All problem templates by name: four modules of functions in Python, two of programs in any language."""

from __future__ import annotations

from collections.abc import Mapping

from ..problem import Problem
from . import grids, machines, planning, sequences, tables, texts

__all__ = ["PROBLEMS"]

PROBLEMS: Mapping[str, Problem] = {
    problem.name: problem
    for module in (sequences, texts, grids, planning, tables, machines)
    for problem in module.PROBLEMS
}
