"""The objects of one server that have metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..auth import Keys
from ..errors import Faulted
from ..http.guard import Guard
from ..runtimes.base import EnvironmentInfo, Runtime
from ..sessions.registry import Sessions

if TYPE_CHECKING:  # SQLAlchemy is loaded with a journal only
    from ..journal.write.writer import Writer
    from .sandboxes import SandboxMeter

__all__ = ["Observed", "tools_of"]


@dataclass(frozen=True)
class Observed:
    """Objects with metrics. ``journal`` is None when it is off; ``started_at`` is seconds since 1970."""

    sessions: Sessions
    runtime: Runtime
    keys: Keys
    guard: Guard
    journal: Writer | None
    version: str
    started_at: float
    sandboxes: SandboxMeter | None = None
    """None without sandboxes."""
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of faults by environment and class, since ``watch``."""

    def watch(self) -> None:
        """Start counting faults, which no other object counts. Called once."""
        self.sessions.meter.tools_of = tools_of(self.runtime)
        self.sessions.faults.listen(self._on_fault)

    def _on_fault(self, fault: Faulted, context: dict[str, Any]) -> None:
        self.faults[str(context.get("environment", "")), fault.fault] += 1


def tools_of(runtime: Runtime) -> Callable[[str], Collection[str]]:
    """Names of an environment's tools, for the meter; computed again when the environments change."""
    seen: object = None
    names: dict[str, frozenset[str]] = {}

    def find(environment: str) -> Collection[str]:
        nonlocal seen, names
        infos = runtime.environments
        if infos is not seen:
            seen, names = infos, {info.name: _tool_names(info) for info in infos}
        return names.get(environment, ())

    return find


def _tool_names(info: EnvironmentInfo) -> frozenset[str]:
    last = info.listing.terminal_tool
    names = {tool.name for tool in info.listing.tools}
    return frozenset(names if last is None else names | {last.name})
