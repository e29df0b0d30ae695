"""A problem, and the templates that make problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .checks import Check
from .draw import Draw

__all__ = ["Problem", "Template", "templates"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a model is asked, what it finds, and what must hold in the end. Paths are relative to /work."""

    prompt: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    setup: str = ""
    """Commands of bash that run in /work after the files were written. What they print names processes:
    lines of a name and a process id."""
    checks: tuple[Check, ...]
    """All must hold. They are made in the order in which they stand: cheap ones first."""
    solution: str
    """Commands of bash that solve it."""


@dataclass(frozen=True)
class Template:
    """A family of problems."""

    kind: str
    name: str
    make: Callable[[Draw], Problem]


def templates(kind: str, *makes: Callable[[Draw], Problem]) -> tuple[Template, ...]:
    """Templates of one kind, each named as its function."""
    return tuple(Template(kind, make.__name__.replace("_", "-"), make) for make in makes)
