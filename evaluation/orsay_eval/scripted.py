"""Policies that are functions: ``module:function``, for baselines, tests and environments' own solvers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orsay_protocol import Message, TextBlock, ToolSpec

from .errors import PolicyError
from .moves import Call, Move, Opening, Result

__all__ = ["ScriptedPolicy", "Turn", "load_policy"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Argument of a scripted policy, for one move.

    ``task`` is the task itself, None where the server keeps tasks to itself. ``number`` counts the turns from
    0, ``memory`` is the episode's own dictionary, ``rng`` its own generator.
    """

    split: str
    index: int
    attempt: int
    number: int
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    results: Sequence[Result]
    task: Mapping[str, Any] | None
    rng: random.Random
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The text of all messages that open the episode."""
        return "\n".join(b.text for m in self.messages for b in m.blocks if isinstance(b, TextBlock))

    @property
    def observation(self) -> str:
        """The text of the last results; of the prompt, at first."""
        return "\n".join(result.text for result in self.results) if self.results else self.prompt


class ScriptedPolicy:
    """Plays by a function of the ``Turn``, perhaps async; a class is called to make one for each episode.

    It returns ``(tool, input)``, a ``Call``, a list of these, a ``str`` (a plain message, for a terminal
    tool), or None to end the episode. An exception loses the episode to the fault ``policy_error``.
    """

    wants_spec = True

    def __init__(self, function: Callable[..., Any], *, name: str | None = None, seed: int = 0) -> None:
        if not callable(function):
            raise ValueError(f"a policy is a function of the turn, or a class; not {function!r}")
        self._function = function
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))
        self.seed = seed

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def player(self, opening: Opening) -> _ScriptedPlayer:
        seed = f"{self.seed}/{opening.split}/{opening.index}/{opening.attempt}"
        try:
            function = self._function() if isinstance(self._function, type) else self._function
        except Exception as exc:  # the user's code may raise anything
            raise PolicyError(f"{self.name} could not be made: {type(exc).__name__}: {exc}") from exc
        return _ScriptedPlayer(function, self.name, opening, random.Random(seed))

    async def aclose(self) -> None:
        """Do nothing: the policy holds no connections."""


class _ScriptedPlayer:
    def __init__(self, function: Any, name: str, opening: Opening, rng: random.Random) -> None:
        self._function, self._name, self._opening, self._rng = function, name, opening, rng
        self._memory: dict[str, Any] = {}
        self._number = 0

    async def move(self, results: Sequence[Result], note: str = "") -> Move:
        opening = self._opening
        turn = Turn(
            split=opening.split,
            index=opening.index,
            attempt=opening.attempt,
            number=self._number,
            messages=opening.messages,
            tools=opening.tools,
            results=results,
            task=opening.spec,
            rng=self._rng,
            memory=self._memory,
        )
        self._number += 1
        try:
            found = self._function(turn)
            if inspect.isawaitable(found):
                found = await found
        except Exception as exc:  # the user's code may raise anything
            raise PolicyError(f"{self._name} raised {type(exc).__name__}: {exc}") from exc
        return self._move(found)

    def _move(self, found: Any) -> Move:
        if found is None:
            return Move(stop="gave_up")
        if isinstance(found, str):
            return Move(text=found)
        several = found if isinstance(found, list) else [found]
        calls = [_call(one) for one in several]
        if not calls or None in calls:
            raise PolicyError(
                f"{self._name} returned {_shown(found)}; a move is (tool, input), a Call, a list of these, "
                "a text, or None"
            )
        return Move([call for call in calls if call is not None])


def _shown(found: Any) -> str:
    try:
        return repr(found)[:300]
    except Exception:  # the user's code, or what is too deep or too long for Python
        return f"a {type(found).__name__}"


def _call(found: Any) -> Call | None:
    if isinstance(found, Call):
        return found
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str):
        name, arguments = found
        return Call(name, {} if arguments is None else arguments)
    return None


def load_policy(target: str, *, seed: int = 0) -> ScriptedPolicy:
    """The policy that ``module:function`` or ``file.py:function`` names, found also in the working directory.

    Raises ValueError if it does not exist; exceptions of the module pass through.
    """
    location, _, name = target.rpartition(":")
    if not location or not name:
        raise ValueError(f"{target!r}: a policy is random, module:function or file.py:function")
    if location.endswith(".py"):
        path = Path(location)
        if not path.is_file():
            raise ValueError(f"there is no file {location}")
        source = importlib.util.spec_from_file_location(path.stem, path)
        assert source is not None and source.loader is not None
        module = importlib.util.module_from_spec(source)
        sys.modules.setdefault(path.stem, module)  # dataclasses look their module up there
        source.loader.exec_module(module)
    else:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(location)
        except ModuleNotFoundError as exc:
            if exc.name is None or not f"{location}.".startswith(f"{exc.name}."):
                raise
            raise ValueError(f"there is no module {location!r}, seen from here") from exc
    found = getattr(module, name, None)
    if found is None:
        raise ValueError(f"{location} has no {name!r}")
    return ScriptedPolicy(found, name=target, seed=seed)
