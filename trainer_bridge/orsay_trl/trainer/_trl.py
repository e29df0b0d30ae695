"""Access to TRL's private attributes: all uses of undocumented parts of TRL.

TRL gives an environment and a reward function no reference to their trainer, and has no hook in its tool
loop. Only this module accesses TRL's internals; ``tests/bridge/test_trl_internals.py`` compares the tables
below with the installed release. It imports neither torch nor TRL.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..play.environment import LiveEnvironment
from .run_context import run_name

__all__ = [
    "ATTRIBUTES",
    "METHODS",
    "OVERRIDDEN",
    "ROLLOUT_PROCESS",
    "VLLM_ATTRIBUTES",
    "calling_trainer",
    "factory_of",
    "is_trainer",
    "label_sessions",
    "logprobs",
    "making_owner",
    "metric_logger",
    "mix_in",
    "starting_trainer",
    "tokenizer_of",
    "tool_schemas",
    "tools_bound",
    "trainer_of",
    "weights_asleep",
    "weights_discarded",
]

OVERRIDDEN = {
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_compute_loss": ["self", "model", "inputs"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_generate_single_turn": [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ],
    "_tool_call_loop": [
        "self",
        "prompts",
        "prompt_ids",
        "completion_ids",
        "completions",
        "logprobs",
        "images",
        "multimodal_fields",
    ],
}
"""Methods of ``trl.GRPOTrainer`` that ``ConcurrentEnvironments`` overrides, with their parameters."""

METHODS = ("_get_per_token_logps_and_entropies", "_log_metric")
"""Methods of ``trl.GRPOTrainer`` that are called."""

ATTRIBUTES = (
    "_batch_environments",
    "_env_tools",
    "_multi_environment",
    "_sync_tool_dicts",
    "_tokenizer",
    "environment_factories",
    "environments",
)
"""Attributes of a ``trl.GRPOTrainer`` that are read."""

VLLM_ATTRIBUTES = ("_llm_weights_sleeping",)
"""Attributes of ``trainer.vllm_generation`` that are read and set."""

ROLLOUT_PROCESS = "grpo-rollout-worker-child"
"""Name of the process in which AsyncGRPO plays, since TRL 1.16."""

_FRAMES = 6
_FRAMES_OF_A_START = 32  # between the trainer and the start of a process, which pickles its arguments


# The trainer behind a call


def calling_trainer() -> Any:
    """The trainer on whose behalf the caller runs, or None.

    TRL calls an environment from one of the trainer's methods. Variables of other frames are not read:
    that would keep their values alive.
    """
    return _caller_among(_FRAMES, is_trainer)


def starting_trainer() -> Any:
    """The trainer that pickles the caller for a new process, or None."""
    return _caller_among(_FRAMES_OF_A_START, is_trainer)


def making_owner() -> Any:
    """The trainer or rollout worker's loop that makes an environment, or None."""
    return _caller_among(_FRAMES, lambda found: tokenizer_of(found) is not None)


def trainer_of(log_metric: Any) -> Any:
    """The trainer of a reward function's ``log_metric``, or None.

    TRL passes to reward functions a method of the trainer, but not the trainer.
    """
    return getattr(log_metric, "__self__", None)


def is_trainer(found: Any) -> bool:
    """True for an object with a trainer's state and arguments."""
    return hasattr(getattr(found, "state", None), "global_step") and hasattr(found, "args")


def label_sessions(
    environments: Iterable[LiveEnvironment], *, state: Any = None, args: Any = None, model: Any = None
) -> None:
    """Label sessions that open from now on with a trainer's step and run, as far as these are given."""
    for environment in environments:
        if state is not None:
            environment.label_step(int(getattr(state, "global_step", 0)))
        if args is not None:
            environment.label_run(run_name(args, model, environment.day))


# Parts of a trainer


def tokenizer_of(owner: Any) -> Any:
    """Tokenizer by which a trainer or a rollout worker's loop parses turns, or None."""
    return getattr(owner, "_tokenizer", None) or getattr(owner, "tokenizer", None)


def factory_of(trainer: Any, row: Mapping[str, Any]) -> Any:
    """Environment factory that TRL will use for a row, or None."""
    return trainer.environment_factories.get(row.get("environment") if trainer._multi_environment else None)


def tool_schemas(trainer: Any, index: int) -> Any:
    """Tools of a rollout of the batch."""
    return trainer._env_tools[trainer._batch_environments[index]]


def tools_bound(trainer: Any, index: int) -> Mapping[str, Any]:
    """Callables by which TRL makes the calls of a rollout, by name."""
    found: Mapping[str, Any] = trainer._sync_tool_dicts[index]
    return found


def metric_logger(trainer: Any) -> Callable[[str, float], None]:
    """Function that adds a number to the trainer's next log entry."""
    found: Callable[[str, float], None] = trainer._log_metric
    return found


def logprobs(trainer: Any, ids: Any, mask: Any, width: int) -> Any:
    """Log probabilities of the last ``width`` tokens, by the function that computes the trainer's loss."""
    found, *_ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, width, batch_size=trainer.args.per_device_train_batch_size
    )
    return found


def weights_asleep(generation: Any) -> bool:
    """True for a colocated engine that discarded its weights."""
    return bool(generation._llm_weights_sleeping)


def weights_discarded(generation: Any) -> None:
    """Note that a colocated engine discarded its weights, so that TRL sends them again."""
    generation._llm_weights_sleeping = True


# The class of a trainer


def mix_in(trainer: Any, mixin: type) -> None:
    """Insert ``mixin`` before the bases of a trainer's class, in place.

    Raises RuntimeError for a release whose methods differ from those known here.
    """
    cls = type(trainer)
    for name, wanted in OVERRIDDEN.items():
        found = getattr(cls, name, None)
        if found is None or _parameters(found) != wanted:
            import trl  # an optional dependency, here for certain: there is a trainer

            raise RuntimeError(
                f"this TRL ({trl.__version__}) has another {name} than the releases known here; "
                "training works without attach(), with one call after another"
            )
    trainer.__class__ = type(cls.__name__, (mixin, cls), {})


def _parameters(function: Any) -> list[str]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return list(inspect.signature(function).parameters)


def _caller_among(frames: int, is_it: Callable[[Any], bool]) -> Any:
    frame = sys._getframe(2).f_back
    for _ in range(frames):
        if frame is None:
            return None
        names = frame.f_code.co_varnames
        if names[:1] == ("self",) and str(frame.f_globals.get("__name__", "")).startswith("trl."):
            found = frame.f_locals["self"]
            if is_it(found):
                return found
        frame = frame.f_back
    return None
