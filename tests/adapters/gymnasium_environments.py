"""Environments for Gymnasium with spaces that its own have not, registered when this module is loaded."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from orsay.adapters import gymnasium_environment


class Everything(gym.Env[Any, Any]):  # type: ignore[misc]  # read as Any; so below
    """Everything at once."""

    def __init__(self) -> None:
        self.action_space = spaces.Dict(
            move=spaces.MultiDiscrete([2, 3]),
            flags=spaces.MultiBinary(2),
            say=spaces.Text(4, charset="abc"),
            push=spaces.Box(-1, 1, (1,)),
        )
        self.observation_space = spaces.Dict(
            view=spaces.Box(0, 255, (16, 16, 3), np.uint8),
            heard=spaces.Text(4, charset="abc"),
            moved=spaces.MultiDiscrete([2, 3]),
        )

    def _see(self, heard: str, moved: Any) -> dict[str, Any]:
        view = self.np_random.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        return {"view": view, "heard": heard, "moved": moved}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._see("a", np.array([0, 0])), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action["move"].dtype == np.int64 and action["push"].dtype == np.float32
        info = {"push": action["push"][0], "nothing": np.float32("inf"), "seen": np.array([1, 2])}
        return self._see(action["say"], action["move"]), np.float64(action["move"].sum()), False, False, info


class Letters(gym.Env[str, str]):  # type: ignore[misc]
    """Say it backwards."""

    closed = 0
    action_space = spaces.Text(3, charset="abc")
    observation_space = spaces.Text(7, charset="abc say")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "say abc", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action[::-1], 0.0, False, False, {}

    def close(self) -> None:
        type(self).closed += 1


class Graphs(Letters):
    """What no tool can take."""

    action_space: Any = spaces.Graph(spaces.Discrete(2), None)


for name, entry in (("Everything-v0", Everything), ("Letters-v0", Letters), ("Graphs-v0", Graphs)):
    if name not in gym.registry:
        gym.register(name, entry_point=entry, disable_env_checker=True)

everything = gymnasium_environment("Everything-v0", name="everything")
letters = gymnasium_environment("Letters-v0", name="letters")
