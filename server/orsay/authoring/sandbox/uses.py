"""Whether the code of an environment makes sandboxes, as its names tell."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .opening import sandbox

__all__ = ["uses_sandboxes"]

_NAME = "sandbox"
_BASES = ("builtins", "abc", "typing", "orsay.authoring.", "openreward.", "ors.")
_TOOLSETS = "orsay.toolsets"


def uses_sandboxes(cls: type, toolsets: tuple[type, ...]) -> bool:
    """True where the class, its toolsets, or functions of their modules name ``sandbox``.

    A class whose helpers in other modules make its sandboxes counts where it reads an attribute ``sandbox``,
    or its module imports ``orsay.sandbox``.
    """
    classes = [each for one in (cls, *toolsets) for each in one.__mro__ if not _is_base(each)]
    if any(each.__module__.startswith(_TOOLSETS) for each in classes):
        return True
    if any(_named(function) for each in classes for function in _functions(vars(each))):
        return True
    modules = {each.__module__: sys.modules.get(each.__module__) for each in classes}
    return any(_module_uses(module) for module in modules.values() if module is not None)


def _is_base(cls: type) -> bool:
    return cls.__module__.startswith(_BASES)


def _module_uses(module: ModuleType) -> bool:
    names = vars(module)
    if any(value is sandbox for value in names.values()):
        return True
    own = {
        name: value for name, value in names.items() if getattr(value, "__module__", "") == module.__name__
    }
    return any(_named(function) for function in _functions(own))


def _functions(names: Any) -> Iterator[FunctionType]:
    for value in names.values():
        for part in (getattr(value, "__func__", value), *(getattr(value, name, None) for name in ("fget",))):
            found = inspect.unwrap(part) if callable(part) else part
            if isinstance(found, FunctionType):
                yield found


def _named(function: FunctionType) -> bool:
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        if _NAME in code.co_names:
            return True
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return False
