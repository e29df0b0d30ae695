"""Log of faults, and the policy for their texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from orsay_protocol.faults import RETRYABLE, Fault

from .errors import Faulted
from .logs import get_logger

__all__ = ["FaultLog", "OnFault"]

_log = get_logger(__name__)
_AUTHORS = frozenset(
    {"tool_error", "setup_error", "prompt_error", "score_error", "task_error", "internal", "bad_reward"}
)
OnFault: TypeAlias = Callable[[Faulted, dict[str, Any]], None]
"""``(fault, context)``; the context names session, owner, environment and tool, as far as there is one."""


class FaultLog:
    """One policy for HTTP errors and stream errors (S4).

    With ``show`` a client gets the exception's text; otherwise an id to look up in the log.
    """

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._callbacks: list[OnFault] = []

    def listen(self, on_fault: OnFault) -> None:
        """Call ``on_fault`` for every fault from now on, when it is logged."""
        self._callbacks.append(on_fault)

    def report(self, fault: Faulted, *, owner: str | None = None, **context: Any) -> None:
        """Assign an id to the fault and log it, once; only listeners get the ``owner`` of its session."""
        if fault.reported:
            return
        fault.reported = True
        fault.fault_id = fault.fault_id or os.urandom(6).hex()
        if fault.fault == "unknown_task_id":
            return
        more = {"traceback": fault.trace} if fault.trace else {}
        _log.warning("fault", fault=fault.fault, id=fault.fault_id, message=fault.message, **context, **more)
        for on_fault in self._callbacks:
            on_fault(fault, context if owner is None else {**context, "owner": owner})

    def text(self, fault: Faulted) -> str:
        """Text for the client."""
        self.report(fault)
        return self.text_of(fault.fault, fault.message, fault.fault_id)

    def text_of(self, fault: str, message: str, fault_id: str) -> str:
        """Text for the client, for a recorded fault: its class, message and id."""
        if self._show or fault not in _AUTHORS:
            return message
        return f"{fault}: see the server's log for id {fault_id}"

    def event(self, fault: Faulted) -> Fault:
        """Data of the stream event ``fault``."""
        text = self.text(fault)
        return Fault.model_validate(
            {
                "class": fault.fault,
                "message": text,
                "id": fault.fault_id,
                "retryable": fault.fault in RETRYABLE,
            }
        )
