"""Objects that all sessions of a server use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsay_protocol.faults import FaultClass

from ..faults import FaultLog
from .call import Call
from .calls import CallTotals
from .limits import SessionLimits
from .meter import Meter

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Shared"]


@dataclass(slots=True)
class Shared:
    """Objects that all sessions of a server share. ``limits`` and ``log_calls`` may change meanwhile.

    ``on_lost`` is called when the runtime lost a session, ``evict`` when stored results are over their bound.
    """

    limits: SessionLimits
    totals: CallTotals
    faults: FaultLog
    task_ids: Iterator[str]
    now: Callable[[], float]
    on_lost: Callable[[Session, FaultClass, str], None]
    evict: Callable[[Call], None]
    log_calls: bool
    meter: Meter
    needs_journal: bool = False
