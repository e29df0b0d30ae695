"""Scorer of episodes by an ``@evaluation_test`` of Eval Protocol, so that one test evaluates and trains."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Self

from .tokens import Message

__all__ = ["EvaluationTest"]

_FROM_PROCESSOR = {
    "env_factory": "_provided_env_factory",
    "env_client_cls": "_env_client_cls",
    "tasks": "_tasks",
    "task_var": "_task_var",
    "docker_image": "_docker_image",
    "env_base_url": "_env_base_url",
    "request_timeout_s": "_request_timeout_s",
    "default_headers": "_default_headers",
    "provider": "_provider",
    "docker_port": "_docker_port",
    "env_vars": "_env_vars",
}


class EvaluationTest:
    """The first ``@evaluation_test`` in a module."""

    def __init__(self, function: Any, path: str) -> None:
        self._function = function
        self._path = path

    def __getstate__(self) -> dict[str, str]:
        return {"_path": self._path}

    def __setstate__(self, state: Mapping[str, str]) -> None:
        self.__init__(_test_in(state["_path"]), state["_path"])  # type: ignore[misc]  # it is found again

    @classmethod
    def load(cls, path: str) -> Self:
        """The test in the module ``path``. Raises ImportError for a module or package that is not there, and
        ValueError for a module without a test."""
        try:
            importlib.import_module("eval_protocol")
        except ImportError as exc:
            raise ImportError("env_path needs Eval Protocol: pip install eval-protocol") from exc
        return cls(_test_in(path), path)

    def environment(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The environment that the test is for, unless ``given`` names one."""
        processor = getattr(getattr(self._function, "__ep_params__", None), "rollout_processor", None)
        if given["env_factory"] is not None or given["env_client_cls"] is not None:
            return {}
        found = {name: getattr(processor, attribute, None) for name, attribute in _FROM_PROCESSOR.items()}
        return {name: value for name, value in found.items() if value is not None}

    async def score(
        self, rollout_id: str, messages: Sequence[Message], answer: str, rewards: Sequence[float]
    ) -> float:
        """Score of an episode by the test; 0.0 without one."""
        models = importlib.import_module("eval_protocol.models")
        row = models.EvaluationRow(
            messages=[
                *(models.Message(role=one["role"], content=one["content"]) for one in messages),
                models.Message(role="assistant", content=answer),
            ],
            input_metadata=models.InputMetadata(row_id=None, completion_params={}),
        )
        row.execution_metadata.rollout_id = rollout_id
        row.execution_metadata.extra = {"step_rewards": list(rewards)}
        scored = self._function(row)
        if inspect.isawaitable(scored):
            scored = await scored
        result = getattr(scored, "evaluation_result", None)
        return float(result.score) if result is not None and result.score is not None else 0.0


def _test_in(path: str) -> Any:
    module = importlib.import_module(path)
    for _, found in inspect.getmembers(module):
        if callable(found) and hasattr(found, "__ep_params__"):
            return found
    raise ValueError(f"{path} has no @evaluation_test")
