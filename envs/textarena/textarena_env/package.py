"""Adapter of the package ``textarena``: the only module that imports it, and makes its games.

Games that download word lists or ask a model elsewhere are not in the catalog: nothing here needs a network.
Some of the others print while they play; a container's log is for the server, so they are silenced.
"""

from __future__ import annotations

import importlib
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import textarena

from .dice import put_dice_into, rolled_by

__all__ = ["Messages", "PackageGame", "make"]

Kind = Literal["prompt", "action", "other"]
Messages = list[tuple[int, str, Kind]]
"""A message: its sender (-1: the game itself), its text, and its kind: rules, a player's action, or other."""

_lock = threading.Lock()
_KINDS: dict[Any, Kind] = {
    textarena.ObservationType.PROMPT: "prompt",
    textarena.ObservationType.PLAYER_ACTION: "action",
}


@dataclass(slots=True, eq=False)
class PackageGame:
    """One game in progress, the generator that it draws from, and the actions of all players so far."""

    wrapped: Any
    bare: Any
    generator: random.Random
    actions: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return bool(self.bare.state.done)

    @property
    def current_player(self) -> int:
        return int(self.bare.state.current_player_id)

    @property
    def rewards(self) -> Mapping[int, float] | None:
        """By player; None until the game is over."""
        rewards: Mapping[int, float] | None = self.bare.state.rewards
        return rewards

    def step(self, action: str) -> bool:
        """Let the current player act; False for an invalid move. Raises what the game raises for odd text."""
        before = self.bare.state.turn
        self.actions.append(action)
        with rolled_by(self.generator):
            self.wrapped.step(action)
        return bool(self.bare.state.turn > before)

    def read(self, player: int) -> Messages:
        """Messages to that player since the last read."""
        told: Sequence[tuple[int, Any, Any]] = self.bare.state.observations[player]
        self.bare.state.observations[player] = []
        # Some games swap arguments when they repeat the player's own action: the text is a number.
        return [
            (sender, text, _KINDS.get(kind, "other")) for sender, text, kind in told if isinstance(text, str)
        ]

    def info(self, player: int) -> dict[str, Any]:
        """The package's record of a player: role, reason for the end, turns, invalid move."""
        return dict(self.bare.state.game_info[player])

    def progress(self) -> float | None:
        """The share of the goal that was reached, by the measure that the game has for games cut short."""
        measure = getattr(self.bare, "_get_percentage_completion", None)
        return None if measure is None else float(measure())


def make(name: str, *, players: int, seed: int, options: Mapping[str, Any]) -> PackageGame:
    """The game of that registered name, reset with ``seed``.

    options: arguments for its constructor, in place of the registered ones.
    """
    generator = random.Random(seed)
    # One at a time: some games keep module state while they generate a puzzle.
    with _lock:
        _prepare(name)
        with rolled_by(generator):
            wrapped = textarena.make(name, **options)
            wrapped.reset(num_players=players, seed=seed)
    bare = wrapped
    while isinstance(bare, textarena.Wrapper):
        bare = bare.env
    if players == 1:
        _put_in_order(bare.state)
    return PackageGame(wrapped, bare, generator)


def _put_in_order(state: Any) -> None:
    """Swap reason and reward of an invalid move, which some games confuse."""
    told = state.set_invalid_move

    def set_invalid_move(reason: Any, reward: Any = -1.0) -> None:
        told(*((reward, reason) if isinstance(reward, str) else (reason, reward)))

    state.set_invalid_move = set_invalid_move


def _prepare(name: str) -> None:
    """Import the game's modules, and replace their ``random`` and ``print``."""
    entry = textarena.envs.registration.ENV_REGISTRY[name].entry_point
    package = entry.partition(":")[0].rpartition(".")[0]
    importlib.import_module(entry.partition(":")[0])
    put_dice_into(textarena.core)  # where a game's state seeds the generator
    for key in [key for key in sys.modules if key == package or key.startswith(f"{package}.")]:
        put_dice_into(sys.modules[key])
        sys.modules[key].__dict__.setdefault("print", _silence)


def _silence(*_: object, **__: object) -> None:
    """In place of ``print`` in modules of games."""
