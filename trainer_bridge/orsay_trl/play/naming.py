"""Names of tools for the environment, for models, and for Python classes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

__all__ = ["attribute_names", "model_names"]

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")
_NO_IDENTIFIER = re.compile(r"\W+", re.ASCII)
_LONGEST = 64
_RESERVED = frozenset(
    {
        *("reset", "get_reward"),  # reserved by TRL
        *("reward", "rewards", "metadata", "finished", "last_output"),  # the state that reward functions read
        *("live", "episode", "scored_by_function"),
    }
)


def model_names(names: Iterable[str]) -> dict[str, str]:
    """Unique names of tools for the model, by tool.

    Up to 64 letters, digits, ``_`` and ``-`` are kept (chat formats allow no others); other characters become
    ``_``, and a number distinguishes equal names.
    """
    wanted = list(dict.fromkeys(names))
    kept = {name for name in wanted if name and not _FOREIGN.search(name) and len(name) <= _LONGEST}
    found: dict[str, str] = {name: name for name in wanted if name in kept}
    taken = set(kept)
    for name in wanted:
        if name not in kept:
            found[name] = _free(_FOREIGN.sub("_", name)[: _LONGEST - 4].strip("_") or "tool", taken)
    return found


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """Method names for the tools, by name.

    They collide with no attribute of ``RolloutEnvironment``, and have no leading underscore, which TRL skips.
    """
    taken: set[str] = set(_RESERVED)
    found = {}
    for name in dict.fromkeys(names):
        plain = _NO_IDENTIFIER.sub("_", name).strip("_") or "tool"
        if plain[0].isdigit():
            plain = f"tool_{plain}"
        if keyword.iskeyword(plain):
            plain += "_tool"
        found[name] = _free(plain, taken)
    return found


def _free(name: str, taken: set[str]) -> str:
    number = 2
    wanted = name
    while wanted in taken:
        wanted = f"{name}_{number}"
        number += 1
    taken.add(wanted)
    return wanted
