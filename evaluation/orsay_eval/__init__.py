"""Evaluation: tasks played with a model or a policy, and statistics of the rewards.

    report = evaluate(
        Evaluation("guessenvironment", split="test", tasks=100, k=4),
        "http://127.0.0.1:8080",
        ChatModel("Qwen/Qwen3-8B", base_url="http://127.0.0.1:8000/v1"),
    )

Importing this loads nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationReport

    from .chat import ChatModel
    from .check import assert_mean, assert_pass_at_k
    from .comparison import Comparison, compare, load_report
    from .definition import Evaluation
    from .errors import EvaluationError, EvaluationStopped, ModelUnusable
    from .moves import Call, Move, Opening, Player, Policy, Result
    from .random_policy import RandomPolicy
    from .reward import discounted
    from .run import evaluate, evaluate_async
    from .scripted import ScriptedPolicy, Turn

__all__ = [
    "Call",
    "ChatModel",
    "Comparison",
    "EvaluatedEpisode",
    "Evaluation",
    "EvaluationError",
    "EvaluationReport",
    "EvaluationStopped",
    "ModelUnusable",
    "Move",
    "Opening",
    "Player",
    "Policy",
    "RandomPolicy",
    "Result",
    "ScriptedPolicy",
    "Turn",
    "assert_mean",
    "assert_pass_at_k",
    "compare",
    "discounted",
    "evaluate",
    "evaluate_async",
    "load_report",
]

_HOMES = {
    "orsay_protocol.evaluation": ("EvaluatedEpisode", "EvaluationReport"),
    "orsay_eval.chat": ("ChatModel",),
    "orsay_eval.check": ("assert_mean", "assert_pass_at_k"),
    "orsay_eval.comparison": ("Comparison", "compare", "load_report"),
    "orsay_eval.definition": ("Evaluation",),
    "orsay_eval.errors": ("EvaluationError", "EvaluationStopped", "ModelUnusable"),
    "orsay_eval.moves": ("Call", "Move", "Opening", "Player", "Policy", "Result"),
    "orsay_eval.random_policy": ("RandomPolicy",),
    "orsay_eval.reward": ("discounted",),
    "orsay_eval.run": ("evaluate", "evaluate_async"),
    "orsay_eval.scripted": ("ScriptedPolicy", "Turn"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            found = getattr(importlib.import_module(home), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
