"""The figures that runtimes show: what they are called outside, their labels and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RUNTIME_FIGURES", "RuntimeFigure"]


@dataclass(frozen=True, slots=True)
class RuntimeFigure:
    """``total``: it only grows, so that its rate means something."""

    text: str
    labels: tuple[str, ...] = ("place",)
    total: bool = False


_PLACE_STATE = ("place", "state")
RUNTIME_FIGURES: dict[str, RuntimeFigure] = {
    "place_sessions": RuntimeFigure("Sessions in each place of orsay.toml."),
    "workers": RuntimeFigure("Worker processes by state.", _PLACE_STATE),
    "workers_started": RuntimeFigure("Worker processes that came up.", total=True),
    "workers_lost": RuntimeFigure("Worker processes that ended by themselves and were replaced.", total=True),
    "worker_start_failures": RuntimeFigure("Worker processes that did not come up.", total=True),
    "worker_memory_bytes": RuntimeFigure("Resident memory of all worker processes together."),
    "worker_stuck_calls": RuntimeFigure("Calls in workers that were given up and still run."),
    "containers": RuntimeFigure("Containers by state.", _PLACE_STATE),
    "containers_wanted": RuntimeFigure("Containers that should be up, spares among them."),
    "containers_up": RuntimeFigure("Containers whose server answers."),
    "container_sessions": RuntimeFigure("Sessions in containers."),
    "containers_started": RuntimeFigure("Containers that were begun.", total=True),
    "containers_lost": RuntimeFigure("Containers that ended or hung, and were replaced.", total=True),
    "container_start_failures": RuntimeFigure("Containers that did not come up.", total=True),
    "upstream_up": RuntimeFigure("Whether the server behind this one answers: 1 or 0."),
    "upstream_sessions": RuntimeFigure("Sessions at the server behind this one."),
    "upstream_outages": RuntimeFigure("How often the server behind this one went down.", total=True),
}
