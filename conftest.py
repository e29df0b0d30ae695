"""For all tests: hypothesis judges results, not the time that a shared machine takes for them, and tries the
same examples in each run (HYPOTHESIS_PROFILE=explore: new ones), servers keep no journal unless a test asks
for one, what fails is printed at once, and a test that cannot be interrupted ends its process."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Generator
from typing import IO

import pytest
from hypothesis import settings

from tests.support.certificates import read_once

pytest_plugins = ["tests.support.tiers", "tests.support.scheduling"]

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
os.environ.setdefault("ORSAY_JOURNAL", "off")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # else each process reads what all packages offer

read_once()

_GRACE_S = 60.0
_stderr = pytest.StashKey[IO[str]]()


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control ignores both in `scripts/test &`; processes under test would inherit that.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # pytest takes the descriptor of stderr for itself while a test runs; this one stays.
    config.stash[_stderr] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stderr].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: garbage collections need not look through it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A time limit interrupts a test once, by an exception; what swallows it or cleans up for ever goes on.

    Such a test is ended with its process, which says where each thread stood; others take over what is left.
    """
    mark = item.get_closest_marker("timeout")
    limit_s = float((mark.args[0] if mark is not None and mark.args else item.config.getini("timeout")) or 0)
    if not limit_s:
        return (yield)
    faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


class _Failures:
    """Tells what fails when it fails: a run that is ended from outside never comes to its summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            last = report.longreprtext.strip().rpartition("\n")[2]
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{report.when} of {report.nodeid} failed: {last[:300]}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Failures(terminal))
