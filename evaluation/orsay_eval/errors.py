"""Errors that end an evaluation, and faults of a model that end an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsay_protocol.evaluation import EvaluationReport

__all__ = ["EvaluationError", "EvaluationStopped", "ModelFault", "ModelUnusable", "PolicyError"]


class EvaluationError(Exception):
    """The evaluation cannot continue as requested; the message names the change that is needed."""


class ModelUnusable(EvaluationError):
    """The model's endpoint refuses every request of this kind: a wrong name, key, URL or option."""


class EvaluationStopped(EvaluationError):
    """Episode after episode was lost to faults. ``report`` has what was played before."""

    def __init__(self, message: str, report: EvaluationReport) -> None:
        super().__init__(message)
        self.report = report


class ModelFault(Exception):
    """The model gave no answer in one episode, through all retries: the episode is lost, not scored."""

    def __init__(self, fault_class: str, message: str) -> None:
        super().__init__(message)
        self.fault_class = fault_class
        self.message = message


class PolicyError(ModelFault):
    """A scripted policy raised, or returned an invalid move."""

    def __init__(self, message: str) -> None:
        super().__init__("policy_error", message)
