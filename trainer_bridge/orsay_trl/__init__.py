"""The bridge to TRL and vLLM: train on any ORS environment.

    from orsay_trl import EnvironmentSpec

    spec = EnvironmentSpec("http://127.0.0.1:8080")

Importing this package imports neither torch nor TRL; what needs them is loaded when it is first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orsay_eval.reward import discounted

from .mixture import Mixture
from .play.episode import Episode, Reply, Step
from .play.fault_budget import TooManyFaults
from .spec import EnvironmentSpec

if TYPE_CHECKING:
    from .rollout.openenv import create_openenv_vllm_rollout_func
    from .rollout.rollout_func import reward_func, vllm_rollout_func
    from .trainer.concurrent import GRPOTrainer, attach

__all__ = [
    "EnvironmentSpec",
    "Episode",
    "GRPOTrainer",
    "Mixture",
    "Reply",
    "Step",
    "TooManyFaults",
    "attach",
    "create_openenv_vllm_rollout_func",
    "discounted",
    "reward_func",
    "vllm_rollout_func",
]

_LATER = {
    "GRPOTrainer": ".trainer.concurrent",
    "attach": ".trainer.concurrent",
    "create_openenv_vllm_rollout_func": ".rollout.openenv",
    "reward_func": ".rollout.rollout_func",
    "vllm_rollout_func": ".rollout.rollout_func",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(module, __name__), name)
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("orsay"):
            raise
        raise ImportError(f"{name} needs {exc.name}: pip install 'orsay[trl]'", name=exc.name) from exc
