"""Error-detail policy for recorded exceptions, the same as for answers to calls."""

from __future__ import annotations

from typing import TypeVar

from ..faults import FaultLog
from ..journal.read.models import Page, Step, Summary, Trajectory

__all__ = ["DetailPolicy"]

S = TypeVar("S", bound=Summary)


class DetailPolicy:
    """Replaces the text of exceptions by their id if the settings require it (S4)."""

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults

    def page(self, page: Page) -> Page:
        return page.model_copy(update={"items": [self._summary(each) for each in page.items]})

    def trajectory(self, played: Trajectory) -> Trajectory:
        found = self._summary(played)
        return found.model_copy(update={"steps": [self._step(step) for step in found.steps]})

    def _summary(self, session: S) -> S:
        if not session.fault or session.calls or not session.end_reason:
            return session
        reason = self._faults.text_of(
            session.fault, session.end_reason, session.sid
        )  # it could not be opened
        return session.model_copy(update={"end_reason": reason})

    def _step(self, step: Step) -> Step:
        if not step.fault:
            return step
        text = self._faults.text_of(step.fault, step.message or "", step.fault_id or "")
        return step.model_copy(update={"message": text})
