"""Loader of environment classes from targets (``module:Class``, ``path/to/file.py``), and the inverse."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType

from ..adapters import adapt, is_adapter_target, target_of
from ..authoring.hosted import environment_base, host
from ..authoring.imports import attribute, import_source, importable_target, split_target
from ..errors import LoadError
from ..suggest import did_you_mean

__all__ = ["load", "source_of"]


def load(target: str) -> list[type]:
    """Environment classes for a target, which is one of:

        my_env.env:MyEnv         a class of a module; the current folder is searched too
        my_env.env               every environment defined in that module or below that package
        path/to/env.py[:MyEnv]   the same for a file, whose ``if __name__ == "__main__"`` does not run
        a:A,b:B                  several
        gymnasium:NAME           an environment of another package: ``orsay.adapters`` has the kinds

    Raises LoadError: no such module or class (with similar names), no environment, or an exception during the
    import (with the author's file and line).
    """
    if is_adapter_target(target):
        return [adapt(target)]
    if "," in target:  # one at a time: in the settings of an adapter a comma is just a comma
        parts = target.split(",", 1)
        return [cls for part in parts if part.strip() for cls in load(part.strip())]
    source, name = split_target(target)
    module = import_source(source)
    return [_class(module, name, source)] if name else _classes(module, source)


def source_of(cls: type) -> str:
    """The target from which another process can load ``cls``.

    Raises LoadError for a class that lives in this process only: one of a function, a notebook or a shell.
    """
    target = target_of(cls)
    return importable_target(cls) if target is None else target


def _class(module: ModuleType, name: str, source: str) -> type:
    found = attribute(module, name)
    if found is None:
        classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
        known = [key for key, value in classes.items() if environment_base(value) not in (None, value)]
        raise LoadError(f"{source} has no class {name!r}{did_you_mean(name, known)}")
    if not inspect.isclass(found) or environment_base(found) is None:
        raise LoadError(
            f"{source}:{name} is not an environment: derive it from orsay.Environment "
            "(classes of openreward.environments and ors are taken too)"
        )
    return found


def _classes(module: ModuleType, source: str) -> list[type]:
    """Environments of a module, without base classes of others."""
    found: list[type] = []
    for name, value in vars(module).items():
        if name.startswith("_") or not inspect.isclass(value) or value in found:
            continue
        inside = value.__module__ == module.__name__ or value.__module__.startswith(module.__name__ + ".")
        if inside and environment_base(value) is not None and not inspect.isabstract(value):
            found.append(value)
    served = [cls for cls in found if not _has_child(cls, found) or _is_hostable(cls)]
    if not served:
        raise LoadError(f"{source} defines no environment; name the class: {source}:MyEnvironment")
    return served


def _is_hostable(cls: type) -> bool:
    try:
        host(cls)
    except LoadError:
        return False
    return True


def _has_child(cls: type, classes: Iterable[type]) -> bool:
    return any(other is not cls and issubclass(other, cls) for other in classes)
