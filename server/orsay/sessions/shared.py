"""Objects that all sessions of a server use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from orsay_protocol.faults import FaultClass

from ..faults import FaultLog
from .call import Call
from .calls import CallTotals
from .limits import SessionLimits
from .meter import Meter

__all__ = ["Shared"]

S = TypeVar("S")


@dataclass(slots=True)
class Shared(Generic[S]):
    """Objects that all sessions of a server share. ``limits`` and ``log_calls`` may change at run time.

    ``S`` is the class of sessions: a parameter, so that ``session`` can import this module. ``on_lost`` is
    called when the runtime lost a session, ``evict`` when stored results are over their bound.
    """

    limits: SessionLimits
    totals: CallTotals
    faults: FaultLog
    task_ids: Iterator[str]
    now: Callable[[], float]
    on_lost: Callable[[S, FaultClass, str], None]
    evict: Callable[[Call], None]
    log_calls: bool
    meter: Meter
    needs_journal: bool = False
