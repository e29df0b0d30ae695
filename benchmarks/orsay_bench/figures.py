"""Measurements and their targets: a figure is a kind of run, a reading one number of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ORS_PEERS = ("openreward", "ors-sdk")
DEFAULT = ("orsay", "orsay-openreward")
ALL = ("orsay-process", "orsay-local", *ORS_PEERS, "openreward-tuned", "openenv", "openenv-async")
ORS = ("orsay-process", "orsay-local", *ORS_PEERS, "openreward-tuned")
BUSY = (*DEFAULT, "orsay-process", *ORS_PEERS)


@dataclass(frozen=True, slots=True)
class Target:
    """Target for our server: a multiple of the baseline, or an upper bound."""

    kind: Literal["ratio", "at_most"]
    limit: float
    aim: float | None = None

    def text(self, unit: str) -> str:
        if self.kind == "ratio":
            return f">= {self.limit:g}x" + (f" (aim {self.aim:g}x)" if self.aim else "")
        return f"<= {self.limit:g} {unit}".rstrip()

    def reached(self, value: float, ratio: float | None) -> bool | None:
        """None when there is no baseline to compare with."""
        if self.kind == "at_most":
            return value <= self.limit
        return None if ratio is None else ratio >= self.limit


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a run's result; only those with `compared` get a ratio against the baseline.

    `{sessions}` in a title stands for as many as the figure uses.
    """

    key: str
    title: str
    unit: str = ""
    target: Target | None = None
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """`arguments` go to the load generator; `repeat` and `limit_s` overrule the run's own."""

    name: str
    readings: tuple[Reading, ...]
    arguments: tuple[str, ...] = ()
    servers: tuple[str, ...] = ORS
    timed: bool = True  # takes --seconds and --warmup
    repeat: int | None = None
    limit_s: float = 120.0
    quick_arguments: tuple[str, ...] = ()
    hogs: bool = False  # other programs want both cores all the time

    def title_of(self, reading: Reading) -> str:
        named = [self.arguments[i + 1] for i, part in enumerate(self.arguments) if part == "--sessions"]
        return reading.title.format(sessions=f"{int(named[-1]):,}" if named else "64")


def _per_cpu(title: str, limit: float, aim: float | None = None) -> tuple[Reading, ...]:
    target = Target("ratio", limit, aim)
    return (Reading("per_cpu_s", f"{title} per CPU second", target=target, compared=True),)


def _errors(title: str) -> Reading:
    return Reading("error_count", f"{title}: errors", target=Target("at_most", 0))


def _hold(name: str, title: str, *extra: str) -> Figure:
    return Figure(
        name,
        (
            _errors(f"{{sessions}} sessions pinged, {title}"),
            Reading("max_ms", f"{title}: worst ping", "ms", Target("at_most", 1000)),
            Reading("p99_ms", f"{title}: p99 of pings", "ms"),
            Reading("server_cpu", f"{title}: cores used", compared=True),
        ),
        ("--mode", "hold", "--sessions", "16000", "--interval", "10", *extra),
        servers=("orsay-process", "orsay-local", "openreward"),
        timed=False,
        repeat=1,
        limit_s=240,
        quick_arguments=("--sessions", "2000"),
    )


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "calls",
            _per_cpu("tool calls, async,", 20),
            ("--mode", "calls"),
            (*DEFAULT, *ALL, "raw-asgi"),
        ),
        Figure(
            "calls-sync",
            _per_cpu("tool calls, plain function,", 7),
            ("--mode", "calls", "--tool", "echo_sync"),
            (*DEFAULT, *ORS),
        ),
        Figure(
            "calls-many",
            (
                Reading("per_cpu_s", "tool calls of {sessions} sessions per CPU second", compared=True),
                Reading("p99_ms", "tool calls of {sessions} sessions: p99", "ms"),
            ),
            ("--mode", "calls", "--sessions", "1000"),
            (*DEFAULT, *ORS),
        ),
        Figure(
            "calls-busy",
            _per_cpu("tool calls on a busy machine", 18),
            ("--mode", "calls"),
            BUSY,
            hogs=True,
        ),
        Figure(
            "episodes",
            _per_cpu("episodes (create, prompt, call, delete)", 10),
            ("--mode", "episodes"),
            (*DEFAULT, *ALL),
        ),
        Figure(
            "episodes-busy",
            _per_cpu("episodes on a busy machine", 9),
            ("--mode", "episodes"),
            BUSY,
            hogs=True,
        ),
        Figure("pings", _per_cpu("pings", 4), ("--mode", "pings")),
        Figure(
            "latency",
            (
                Reading("p50_ms", "200 calls/s: p50", "ms"),
                Reading("p99_ms", "200 calls/s: p99", "ms", Target("at_most", 5)),
                Reading("max_ms", "200 calls/s: worst", "ms"),
            ),
            ("--mode", "rate", "--rate", "200"),
            ALL,
        ),
        Figure(
            "memory",
            (
                Reading("kib_per_session", "an idle session", "KiB", Target("at_most", 1.5)),
                Reading("gateway_rss_mb", "idle server (gateway)", "MB", Target("at_most", 70)),
                Reading("idle_rss_mb", "idle server (with workers)", "MB"),
                Reading("left_mib", "kept after {sessions} sessions ended", "MiB", Target("at_most", 2)),
                Reading("second_fill_mib", "more when filled again", "MiB"),
            ),
            ("--mode", "memory", "--sessions", "5000"),
            ALL,
            timed=False,
            limit_s=240,
            quick_arguments=("--sessions", "500"),
        ),
        Figure(
            "burst-async",
            (
                Reading("wall_s", "{sessions} async calls of 1 s at once", "s", Target("at_most", 1.5)),
                _errors("{sessions} async calls"),
            ),
            ("--mode", "burst", "--sessions", "1000", "--tool", "slow", "--input", '{"seconds": 1.0}'),
            timed=False,
            quick_arguments=("--sessions", "200"),
        ),
        Figure(
            "burst-block",
            (
                Reading("wall_s", "{sessions} blocking calls of 0.5 s at once", "s", Target("at_most", 1.5)),
                _errors("{sessions} blocking calls"),
            ),
            ("--mode", "burst", "--sessions", "200", "--tool", "block", "--input", '{"seconds": 0.5}'),
            timed=False,
            limit_s=150,
            quick_arguments=("--sessions", "50"),
        ),
        _hold("hold", "shared connections"),
        _hold("hold-each", "one connection each", "--channel-per-session"),
        Figure(
            "start",
            (
                Reading("health_s", "exec to /health", "s", Target("at_most", 0.6)),
                Reading("ready_s", "exec to /ready", "s"),
            ),
            servers=("orsay-process", "orsay-local", *ORS_PEERS, "openenv"),
            timed=False,
            repeat=5,
        ),
    )
}
