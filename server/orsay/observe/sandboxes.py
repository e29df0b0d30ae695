"""Counts and durations of the sandboxes of a server, since its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from ..authoring.sandbox.model import Limit
from ..sandboxes.events import CommandEnded, EndReason, SandboxEnded, SandboxEvent, SandboxMade
from ..sandboxes.service import SandboxService
from ..sessions.meter import Durations

__all__ = ["END_REASONS", "KILLS", "STARTS", "SandboxMeter"]

END_REASONS: tuple[str, ...] = get_args(EndReason)
Start: TypeAlias = Literal["cold", "warm"]
STARTS: tuple[str, ...] = get_args(Start)
KILLS: tuple[str, ...] = get_args(Limit)


class SandboxMeter:
    """Listener of a service's events; ``starts`` are histograms of the time until a sandbox answers."""

    def __init__(self, service: SandboxService) -> None:
        self._service = service
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.starts: dict[str, Durations] = {each: Durations() for each in STARTS}
        self.commands = Durations()
        service.listeners.append(self._heard)

    def states(self) -> Mapping[str, int]:
        """Number of sandboxes that are being made, and of those that live."""
        living = [each.creating.done() for each in self._service.living.values()]
        return {"creating": living.count(False), "living": living.count(True)}

    def _heard(self, event: SandboxEvent) -> None:
        if isinstance(event, CommandEnded):
            self.commands.add(event.duration_s)
            if event.limit is not None:
                self.kills[event.limit] += 1
        elif isinstance(event, SandboxMade):
            start = "warm" if event.warm else "cold"
            self.started[start] += 1
            self.starts[start].add(event.duration_s)
        elif isinstance(event, SandboxEnded):
            self.ended[event.reason] += 1
