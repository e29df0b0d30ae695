"""Adapters: environments of other packages, named by a target or made by a function.

    gymnasium:FrozenLake-v1?is_slippery=false     ``gymnasium_environment``
    reasoning-gym:countdown?min_numbers=3         ``reasoning_gym_environment``
    text:module:Class                             ``text_environment``
    openenv:http://host:8000                      ``openenv_environment``; also module:Class and image:NAME

Each function returns a class. An adapter is imported on first use, since most workers need none; the package
behind it is imported when a class is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import LoadError
from .procedural import target_of
from .spelling import read

if TYPE_CHECKING:
    from .gymnasium import gymnasium_environment
    from .openenv import openenv_environment
    from .reasoning_gym import reasoning_gym_environment
    from .text import text_environment

__all__ = [
    "adapt",
    "gymnasium_environment",
    "is_adapter_target",
    "openenv_environment",
    "reasoning_gym_environment",
    "target_of",
    "text_environment",
]

_KINDS: Mapping[str, str] = {
    "gymnasium": "gymnasium_environment",
    "openenv": "openenv_environment",
    "reasoning-gym": "reasoning_gym_environment",
    "text": "text_environment",
}
_OWN_MODULE = frozenset({"openenv", "text"})  # an author's module may have these names too


def __getattr__(name: str) -> Any:
    if name not in _KINDS.values():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{name.removesuffix('_environment')}", __name__), name)


def is_adapter_target(target: str) -> bool:
    """True for a target that begins with the name of an adapter.

    ``text:Class`` is a class of the author's module ``text``: the adapter's targets have one more colon.
    """
    kind, _, rest = target.partition(":")
    return kind in _KINDS and (kind not in _OWN_MODULE or ":" in rest)


def adapt(target: str) -> type:
    """The environment class for the target of an adapter.

    Raises LoadError: its package is missing, it knows no such name or setting (with the nearest), or the
    environment cannot be made or served.
    """
    kind, _, rest = target.partition(":")
    name, settings = read(rest)
    if not name:
        raise LoadError(f"{target!r} names no environment; write {kind}:NAME")
    made: type = __getattr__(_KINDS[kind])(name, **settings)
    return made
