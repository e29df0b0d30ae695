"""For all tests: hypothesis judges results, not the time that a shared machine takes for them, servers keep
no journal unless a test asks for one, what fails is told at once, a test that cannot be interrupted ends its
process, and no containers come and go beside a browser."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator
from typing import IO, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.support.tiers"]

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
os.environ.setdefault("ORSAY_JOURNAL", "off")

_GRACE_S = 60.0
_stderr = pytest.StashKey[IO[str]]()


def pytest_configure(config: pytest.Config) -> None:
    # pytest takes the descriptor of stderr for itself while a test runs; this one stays.
    config.stash[_stderr] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stderr].close()


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


_NETWORK = ("tests/console/", "tests/deploy/", "tests/docker/", "tests/images/", "tests/spaces/")
_NETWORK_FILES = ("tests/config/test_images.py", "tests/envs/test_textarena_image.py")
_LONG = ("tests/bridge/", "tests/cli/", "tests/envs/", "tests/gateway/", "tests/interop/", "tests/system/")


def _changes_network(file: str) -> bool:
    return file.startswith(_NETWORK) or file in _NETWORK_FILES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no process ends long after the others."""

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return 0 if _changes_network(file) else 1 if file.startswith(_LONG) else 2

    items.sort(key=place)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Files stay together. Those that change the network share a process with those whose browser hears it.

    When a container starts or ends, chromium breaks off its connections, local ones too: ERR_NETWORK_CHANGED.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "network" if _changes_network(file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Failures(terminal))
