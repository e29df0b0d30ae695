"""Targets of an author's classes and functions that are not environments themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..authoring.imports import attribute, import_source, importable_target, split_target
from ..errors import LoadError
from ..suggest import did_you_mean

__all__ = ["find", "target_or_problem"]


def find(kind: str, target: str) -> Callable[..., Any]:
    """The class or function that ``module:name`` names. Raises LoadError, with similar names."""
    source, name = split_target(target)
    if not name:
        raise LoadError(f"{kind}:{target} names no class; write {kind}:{target}:Class")
    module = import_source(source)
    found = attribute(module, name)
    if found is None:
        known = [key for key, value in vars(module).items() if callable(value)]
        raise LoadError(f"{source} has no {name!r}{did_you_mean(name, known)}")
    if not callable(found):
        raise LoadError(
            f"{kind}:{target} is one object for all; name its class, or a function that makes one"
        )
    made: Callable[..., Any] = found
    return made


def target_or_problem(given: Any) -> tuple[str | None, str]:
    """The target of a class or function, or None and the reason why it has none."""
    if isinstance(given, str):
        return given, ""
    try:
        return importable_target(given), ""
    except LoadError as exc:
        return None, str(exc)
    except AttributeError:
        return (
            None,
            f"{given!r} has no name by which another process could load it; serve it with the local runtime",
        )
