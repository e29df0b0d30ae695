"""Measurements of training, their targets, and the two tables that show them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .report import REACHED, Run, number, values_of

ROLLOUTS, CLIENT = "rollouts", "client"
BASELINE = {ROLLOUTS: "trl", CLIENT: "openreward"}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to train; `target` is how many times as many rollouts per second as TRL's it has to reach."""

    name: str
    title: str
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One way to make calls."""

    name: str
    title: str


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("trl", "TRL's trainer, `OpenRewardSpec`"),
        Contender("orsay-serial", "TRL's trainer, `EnvironmentSpec(attach=False)`"),
        Contender("orsay-attached", "TRL's trainer, `EnvironmentSpec`, from the second batch", 3),
        Contender("orsay-factory", "`orsay_trl.GRPOTrainer`, `EnvironmentSpec`", 3),
        Contender("orsay-rollout", "TRL's trainer, `vllm_rollout_func`", 5),
    )
}
CLIENTS = {
    client.name: client
    for client in (
        Client("openreward", "`openreward`, async client"),
        Client("trl-spec", "`OpenRewardSpec` of TRL, over `openreward`"),
        Client("orsay", "`orsay_client`, async client"),
        Client("orsay-spec", "`EnvironmentSpec`, over `orsay_client`"),
    )
}


@dataclass(frozen=True, slots=True)
class Line:
    """The medians of one contender over all runs; `ratio` is that of rollouts per second to the baseline."""

    name: str
    title: str
    rollouts_per_s: float
    batch_s: float
    cpu_s: float
    server_cpu_s: float
    runs: int
    ratio: float | None
    target: float | None
    reached: bool | None


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time that a call takes in the client's process; `ratio` is the share of the baseline's."""

    name: str
    title: str
    cpu_us_per_call: float
    per_s: float
    runs: int
    ratio: float | None


def median(runs: Sequence[Run], figure: str, name: str, key: str) -> float | None:
    found = values_of(runs, figure, name, key)
    return statistics.median(found) if found else None


def lines(runs: Sequence[Run]) -> list[Line]:
    """One for each contender with a result."""
    base = median(runs, ROLLOUTS, BASELINE[ROLLOUTS], "rollouts_per_s")
    made = []
    for name, contender in CONTENDERS.items():
        rate = median(runs, ROLLOUTS, name, "rollouts_per_s")
        if rate is None:
            continue
        ratio = rate / base if base else None
        target = contender.target
        made.append(
            Line(
                name=name,
                title=contender.title,
                rollouts_per_s=rate,
                batch_s=median(runs, ROLLOUTS, name, "batch_s") or 0.0,
                cpu_s=median(runs, ROLLOUTS, name, "cpu_s") or 0.0,
                server_cpu_s=median(runs, ROLLOUTS, name, "server_cpu_s") or 0.0,
                runs=len(values_of(runs, ROLLOUTS, name, "rollouts_per_s")),
                ratio=ratio,
                target=target,
                reached=None if target is None or ratio is None else ratio >= target,
            )
        )
    return made


def costs(runs: Sequence[Run]) -> list[Cost]:
    """One for each client with a result."""
    base = median(runs, CLIENT, BASELINE[CLIENT], "cpu_us_per_call")
    made = []
    for name, client in CLIENTS.items():
        cost = median(runs, CLIENT, name, "cpu_us_per_call")
        if cost is not None:
            rate = median(runs, CLIENT, name, "per_s") or 0.0
            count = len(values_of(runs, CLIENT, name, "cpu_us_per_call"))
            made.append(Cost(name, client.title, cost, rate, count, cost / base if base else None))
    return made


def line_cells(found: Sequence[Line], episodes: int, *, judged: bool = True) -> list[list[str]]:
    """Head and lines of the table of contenders; a quick run is not judged, it is too short."""
    head = [
        "",
        "rollouts per s",
        f"batch of {episodes}, s",
        "its CPU, s",
        "server CPU, s",
        "target",
        "reached?",
    ]
    cells = []
    for line in found:
        verdict = ""
        if line.target is not None:
            verdict = REACHED[line.reached] if judged else "not judged (quick)"
        cells.append(
            [
                line.title,
                _with_ratio(line.rollouts_per_s, line.ratio),
                number(line.batch_s),
                number(line.cpu_s),
                number(line.server_cpu_s),
                "" if line.target is None else f">= {line.target:g}x",
                verdict,
            ]
        )
    return [head, *cells]


def cost_cells(found: Sequence[Cost]) -> list[list[str]]:
    """Head and lines of the table of clients."""
    head = ["", "client CPU, us per call", "calls per s"]
    return [
        head,
        *([c.title, _with_ratio(c.cpu_us_per_call, c.ratio), number(c.per_s)] for c in found),
    ]


def facts(found: Sequence[Line | Cost]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{name: getattr(one, name) for name in type(one).__slots__} for one in found]


def _with_ratio(value: float, ratio: float | None) -> str:
    return number(value) + (f" ({number(ratio)}x)" if ratio is not None else "")
