"""Error texts for clients of other protocols, with the class of the fault."""

from __future__ import annotations

from orsay_protocol.faults import RETRYABLE, Fault

from ..errors import Faulted, Refused
from ..faults import FaultLog

__all__ = ["fault_of", "text_of"]


def fault_of(error: Refused | Faulted, faults: FaultLog) -> Fault | None:
    """Class of the fault of an error; None for a request that was refused for its content."""
    if isinstance(error, Faulted):
        return faults.event(error)
    if error.fault is None:
        return None
    return Fault(fault_class=error.fault, message=error.detail, id="", retryable=error.fault in RETRYABLE)


def text_of(error: Refused | Faulted, faults: FaultLog) -> str:
    """One line that begins with the class of the fault, for clients that show only a text."""
    fault = fault_of(error, faults)
    if fault is None:
        return error.detail if isinstance(error, Refused) else str(error)
    if fault.message.startswith(f"{fault.fault_class}:"):
        return fault.message
    return f"{fault.fault_class}: {fault.message}"
