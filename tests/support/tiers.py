"""Tiers of tests, by what a test needs, and the check that holds each test to its marks.

A test that needs a Docker engine, a browser or Node, a database server or the virtual environment of another
package has that mark; one that needs none of them and starts processes has ``process``; all others are
``unit``. A test that uses what it is not marked for fails. Audit events tell what this process does; the
processes that it starts find no Docker engine unless the test is marked for one.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Set
from pathlib import Path
from typing import Any

import pytest

__all__ = ["OUTSIDE", "TIERS", "need"]

OUTSIDE = ("engine", "browser", "database", "venv")
"""Tiers that need more than this repository's own virtual environment."""
TIERS = ("unit", "process", *OUTSIDE)

_FIXTURES = {"browser": "browser", "postgres": "database", "players": "venv"}
_ENVIRONMENTS = Path(__file__).parents[2] / "envs"
_ENGINE_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
_NO_ENGINE = "/nonexistent/mark-tests-of-containers-engine.sock"
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"}
_WATCHED = frozenset({*_STARTS, "socket.connect"})
_LEFT_OUT = "left_out"
_DOCKER = shutil.which("docker")  # a test may put another program of that name, or none, on its path


class _Use:
    """What the running test and the live fixtures have used so far."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.seen: dict[str, str] = {}
        self.reported = False
        self.fixtures: dict[str, dict[str, str]] = {}

    def add(self, tier: str, by: str) -> None:
        if self.item is not None:
            self.seen.setdefault(tier, by)

    def missing(self, item: pytest.Item) -> dict[str, str]:
        """Tiers that were used and are not marked, with what used them."""
        used = dict(self.seen)
        for name in getattr(item, "fixturenames", ()):
            used |= self.fixtures.get(name, {})
        background = {
            tier
            for name, tiers in self.fixtures.items()
            if name not in getattr(item, "fixturenames", ())
            for tier in tiers
        }
        if "engine" in background:  # a fixture of a whole file lives on, and its threads speak to the engine
            used.pop("engine", None)
        marked = {mark.name for mark in item.iter_markers() if mark.name in TIERS} - {"unit"}
        allowed = marked | {"process"} if marked else marked
        return {tier: by for tier, by in used.items() if tier not in allowed}


_use = _Use()


def need(tier: str, by: str) -> None:
    """Note that the running test uses something of that tier; ``by`` says to a reader what it was."""
    _use.add(tier, by)


def _audit(event: str, args: tuple[Any, ...], watched: Set[str] = _WATCHED) -> None:
    # Called for each file, import and object with a hook; also when this module's globals are gone already.
    if event not in watched or _use.item is None:
        return
    if event in _STARTS:
        command = _command(event, args)
        need(_tier_of(command), f"started {' '.join(command)[:200] or 'a fork'}")
    elif _is_engine(args[0], args[1]):
        need("engine", f"connected to {args[1]}")


def _command(event: str, args: tuple[Any, ...]) -> list[str]:
    if event not in ("subprocess.Popen", "os.posix_spawn"):
        return []
    words = [args[1]] if isinstance(args[1], str | bytes | os.PathLike) else args[1]
    return [os.fsdecode(word) for word in words]


def _tier_of(command: Iterable[str]) -> str:
    program = Path(next(iter(command), ""))
    if program.name in ("postgres", "initdb"):
        return "database"
    if program.name == "docker" and _DOCKER is not None and shutil.which(str(program)) == _DOCKER:
        return "engine"
    if program.name.startswith("chrom") or "playwright" in program.parts or program.name in ("node", "npm"):
        return "browser"
    return "process"


def _is_engine(connecting: socket.socket, address: object) -> bool:
    if connecting.family != socket.AF_UNIX:
        return False
    path = os.fsdecode(address) if isinstance(address, str | bytes) else ""
    return path in (*_ENGINE_SOCKETS, _NO_ENGINE, os.environ.get("DOCKER_HOST", "").removeprefix("unix://"))


sys.addaudithook(_audit)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in set(getattr(item, "fixturenames", ())) & _FIXTURES.keys():
            item.add_marker(_FIXTURES[fixture])
        if item.path.is_relative_to(_ENVIRONMENTS):
            item.add_marker("process")  # projects of their own, which know no tiers
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker("unit")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("engine") is None:
            patch.setenv("DOCKER_HOST", f"unix://{_NO_ENGINE}")
        _use.item, _use.seen, _use.reported = item, {}, False
        try:
            return (yield)
        finally:
            _use.item = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("engine") is not None:
        from tests.support.engine import skip_without_engine  # the SDK is optional

        skip_without_engine()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """What a fixture uses counts for every test that requests it, and not for the first alone."""
    before, _use.seen = _use.seen, {}
    try:
        return (yield)
    finally:
        _use.fixtures.setdefault(fixturedef.argname, {}).update(_use.seen)
        _use.seen = before | _use.seen


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    if "engine" in _use.fixtures.pop(fixturedef.argname, {}):
        _use.seen.pop("engine", None)  # said by the fixture, at its end too; the test was judged before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    early = report.when == "setup" and report.passed  # the report of the call has both
    missing = {} if early or report.failed or _use.reported else _use.missing(item)
    if missing:
        reported = "; ".join(f"it {by}: mark it {tier}" for tier, by in missing.items())
        report.outcome, report.longrepr = "failed", f"a test uses what it is not marked for: {reported}"
        _use.reported = True
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what ``-m`` leaves out, each test once, by the tier that is the furthest away."""
    for item in items:
        tier = next(tier for tier in (*OUTSIDE, "process", "unit") if item.get_closest_marker(tier))
        _left_out(item.config)[tier] += 1


_counts = pytest.StashKey[Counter[str]]()


def _left_out(config: pytest.Config) -> Counter[str]:
    return config.stash.setdefault(_counts, Counter[str]())


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_LEFT_OUT] = dict(_left_out(session.config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every process of xdist collects everything, so that one reports for all.
    left = getattr(node, "workeroutput", {}).get(_LEFT_OUT)
    if left:
        node.config.stash[_counts] = Counter(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = _left_out(config)
    if config.option.markexpr and left and not hasattr(config, "workerinput"):
        parts = ", ".join(f"{left[tier]} {tier}" for tier in TIERS if left[tier])
        terminalreporter.write_line(f"left out: {parts}. ./scripts/test --all runs everything", yellow=True)
