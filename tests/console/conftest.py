"""For tests of the console's page: a server with something to show, and a person with a browser.

Everything lives as long as a file: while Playwright runs, no asynchronous test can, and files share
processes.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.network import own_network
from tests.support.server_process import ServerProcess

from .browsing import Visitor, browser_problem, chromium, visiting
from .recorded import Recorded, make_journal

__all__ = ["console_server"]

_ROOT = Path(__file__).parents[2]
_BUNDLED = ("guess", "echo", "arithmetic", "doors")
_ENVIRONMENTS = Path(__file__).with_name("environments.py")


@contextmanager
def console_server(journal: str, *, port: str = "0", **settings: str) -> Iterator[ServerProcess]:
    """A server of bundled environments and those of environments.py; ``settings`` by their names."""
    targets = [f"{name}_env.env:{name.capitalize()}Environment" for name in _BUNDLED]
    found = [
        *(str(_ROOT / "envs" / name) for name in _BUNDLED),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    variables = {
        "PYTHONPATH": os.pathsep.join(found),
        "ORSAY_SERVER_NAME": "demo",
        "ORSAY_WORKERS": "1",
        "ORSAY_LOG_FORMAT": "json",
        "ORSAY_JOURNAL": journal,
        **{f"ORSAY_{name.upper()}": value for name, value in settings.items()},
    }
    made = [f"{_ENVIRONMENTS}:Kitchen", f"{_ENVIRONMENTS}:Warehouse"]
    process = ServerProcess(["--port", port, *targets, *made], variables)
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module", autouse=True)
def network(request: pytest.FixtureRequest) -> Iterator[None]:
    """A network of its own for a file with a browser: containers of other tests would disturb it."""
    here = [item for item in request.session.items if item.path == request.path]
    browses = any("browser" in getattr(item, "fixturenames", ()) for item in here)
    with own_network() if browses else nullcontext():
        yield


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server of a file keeps its journal."""
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def recorded(journal: Path) -> Recorded:
    """Sessions that are in the journal before the server starts."""
    return make_journal(journal)


@pytest.fixture(scope="module")
def console(journal: Path) -> Iterator[ServerProcess]:
    """A server with a journal and without keys."""
    with console_server(str(journal)) as process:
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    problem = browser_problem()
    if problem is not None:
        pytest.skip(problem)
    with chromium() as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, console: ServerProcess, tmp_path: Path) -> Iterator[Visitor]:
    """A tab; at the end of the test, all that it did is checked (see ``Visitor.check``)."""
    with visiting(browser, console.url, tmp_path) as tab:
        yield tab


@pytest.fixture
def phone(browser: Browser, console: ServerProcess, tmp_path: Path) -> Iterator[Visitor]:
    """As ``visitor``, on a phone."""
    with visiting(browser, console.url, tmp_path, phone=True) as tab:
        yield tab


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test that failed has what its tab showed then."""
    report = yield
    here = Path(__file__).parent in item.path.parents
    for value in getattr(item, "funcargs", {}).values() if here and report.failed else ():
        if isinstance(value, Visitor):
            report.sections.append(("what the page showed", value.describe()))
    return report
