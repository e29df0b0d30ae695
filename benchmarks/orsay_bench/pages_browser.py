"""Times of the console's pages in a browser, by its own clock: until the data is on the page and all plots
within the window are drawn, checked before each frame.

First each page is opened by its address with an empty cache, then by navigation from another, idle page of
the console, without cached data.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from .pages_http import percentile
from .pages_journal import Recorded
from .report import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["problem", "time_pages"]

CHROMIUM = "/usr/bin/chromium"
_LIMIT_MS = 20_000
_ROWS = "document.querySelector('[data-row]') && !document.querySelector('[aria-busy=true]')"
_START = "/environments"
_STARTED = "document.querySelector('article')"
# the clock of a page starts with its navigation; a click is timed when the browser gets the event
_NOTE = """
window.__at = 0;
for (const kind of ["click", "change"])
  document.addEventListener(kind, () => { window.__at = performance.now(); }, true);
"""
_GO = """path => {
  window.__at = performance.now();
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
_AT_REST = """() => {
  const now = performance.now(), files = performance.getEntriesByType("resource").length;
  if (files !== window.__files) [window.__files, window.__came] = [files, now];
  return now - window.__came > 500;
}"""
_IDS = "[...document.querySelectorAll('[data-row]')].map(row => row.dataset.row).join()"
_TITLE = "(document.querySelector(\"[aria-label='Tasks as a table'] h2\") ?? {}).textContent"


@dataclass(frozen=True, slots=True)
class Visit:
    """Go to ``path`` until ``shown`` holds in the page; or there do ``act``, until ``then`` holds."""

    name: str
    path: str
    shown: str
    act: Callable[[Page], None] | None = None
    then: str = ""


def problem() -> str | None:
    """Why there is no browser; None when there is one."""
    if not Path(CHROMIUM).exists():
        return f"no browser: {CHROMIUM} is missing"
    try:
        from playwright.sync_api import sync_playwright  # a dependency of developers
    except ImportError:
        return "no Playwright: pip install playwright"
    return None if callable(sync_playwright) else "no Playwright"


def _visits(there: Recorded, evaluations: Sequence[str]) -> list[Visit]:
    drawn = "document.querySelectorAll('canvas').length"
    plots = "[...document.querySelectorAll('.plot')]"
    seen = "one => one.querySelector('canvas') || one.getBoundingClientRect().top >= innerHeight"
    plotted = f"{plots}.length >= 5 && {plots}.every({seen})"
    steps = "document.querySelectorAll('[data-step]').length"
    of = there.environment
    only = f"[...document.querySelectorAll('[data-row]')].every(row => row.textContent.startsWith({of!r}))"

    def runs(*names: str) -> str:
        return f"/runs/compare?{urlencode([('run', name) for name in names])}"

    made = [
        Visit("environments", "/environments", "document.querySelector('article')"),
        Visit("one environment", "/environments/echoenvironment", _says("echo_sync")),
        Visit("live", "/live", _says("Calls per second")),
        Visit("trajectories", "/trajectories", _ROWS),
        Visit(
            "trajectories: click on Older",
            "/trajectories",
            _ROWS,
            lambda page: page.get_by_role("link", name="Older", exact=True).click(),
            f"{_ROWS} && {_IDS} !== window.__ids",
        ),
        Visit(
            "trajectories: choose an environment",
            "/trajectories",
            f"{_ROWS} && [...document.querySelectorAll('option')].some(one => one.value === {of!r})",
            lambda page: _choose(page, "Environment", of),
            f"{_ROWS} && location.search.includes('environment=') && {only}",
        ),
        Visit(
            "trajectories: choose a fault",
            "/trajectories",
            _ROWS,
            lambda page: _choose(page, "Fault", "any"),
            f"{_ROWS} && location.search.includes('fault=') && {_IDS} !== window.__ids",
        ),
        Visit("trajectories: text of all", "/trajectories?text=karma", _ROWS),
        Visit("trajectories: text of none", "/trajectories?text=nowhere", _says("No trajectory fits")),
        Visit("one trajectory", f"/trajectories/{there.middle}", f"{steps} > 0"),
        Visit("one trajectory of 500 calls", f"/trajectories/{there.long}", f"{steps} >= 200"),
        Visit(
            "trajectories: click on one",
            "/trajectories",
            _ROWS,
            lambda page: page.locator("[data-row]").first.click(),
            "document.querySelector('[aria-label=Facts]')",
        ),
        Visit(
            "two trajectories compared",
            f"/trajectories/diff?a={there.same_task[0]}&b={there.same_task[1]}",
            "document.querySelector('.pairs li')",
        ),
        Visit("runs", "/runs", "document.querySelector('[data-row]')"),
        Visit("two runs compared", runs(there.run, there.other_run), plotted),
        Visit("a run over time", runs(there.unlabelled), plotted),
        Visit("tasks", "/tasks", f"{drawn} >= 1"),
        Visit(
            "tasks: choose an environment",
            "/tasks",
            f"{drawn} >= 1 && [...document.querySelectorAll('option')].some(one => one.value === {of!r})",
            lambda page: _choose(page, "Environment", of),
            f"{_TITLE} !== window.__title",
        ),
        Visit("evaluations", "/evaluations", "document.querySelector('[data-row]')"),
    ]  # fmt: skip
    if evaluations:
        made.append(
            Visit("one evaluation", f"/evaluations/{evaluations[0]}", "document.querySelector('table')")
        )
    if len(evaluations) > 1:
        path = f"/evaluations/compare?a={evaluations[1]}&b={evaluations[0]}"
        made.append(Visit("two evaluations compared", path, "document.querySelector('table')"))
    return made


def _says(words: str) -> str:
    return f"document.body?.innerText.includes({words!r})"


def _choose(page: Page, label: str, value: str) -> None:
    page.get_by_label(label, exact=True).first.select_option(value)


def time_pages(
    kind: str, url: str, there: Recorded, evaluations: Sequence[str], repeat: int, say: Callable[[str], None]
) -> list[Run]:
    """Open each page once with an empty cache, then navigate to it ``repeat`` times."""
    from playwright.sync_api import Error, sync_playwright

    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    runs = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            for visit in _visits(there, evaluations):
                say(f"  in the browser: {visit.name}")
                context = browser.new_context(viewport={"width": 1200, "height": 800})
                context.set_default_timeout(_LIMIT_MS)
                try:
                    page = context.new_page()
                    page.add_init_script(_NOTE)
                    first = _open(page, url, visit)
                    times = [_go(page, url, visit) for _ in range(repeat)]
                    runs.append(Run(visit.name, kind, 1, _result(first, times)))
                except Error as error:
                    runs.append(Run(visit.name, kind, 1, {}, failed=str(error)[:300]))
                finally:
                    context.close()
        finally:
            browser.close()
    return runs


def _result(first: float, times: list[float]) -> dict[str, Any]:
    return {
        "first_ms": round(first, 1),
        "median_ms": round(statistics.median(times), 1),
        "p95_ms": round(percentile(times, 0.95), 1),
        "min_ms": round(min(times), 1),
    }


def _open(page: Page, url: str, visit: Visit) -> float:
    """Milliseconds from the navigation to an address."""
    page.goto(f"{url}/console{visit.path}", wait_until="commit")
    return _wait(page, visit.shown)


def _go(page: Page, url: str, visit: Visit) -> float:
    """Milliseconds from another page of the console, or from an action on this one."""
    start, started = (_START, _STARTED) if visit.act is None else (visit.path, visit.shown)
    if visit.path == start and visit.act is None:
        start, started = "/live", _says("Calls per second")
    page.goto("about:blank")
    page.goto(f"{url}/console{start}", wait_until="commit")
    _wait(page, started)
    page.wait_for_function(_AT_REST)
    if visit.act is None:
        page.evaluate(_GO, f"/console{visit.path}")
        return _since(page, visit.shown)
    page.evaluate(f"() => {{ window.__ids = {_IDS}; window.__title = {_TITLE}; }}")
    visit.act(page)
    return _since(page, visit.then)


def _since(page: Page, shown: str) -> float:
    return _wait(page, shown) - float(page.evaluate("window.__at"))


def _wait(page: Page, shown: str) -> float:
    handle = page.wait_for_function(f"() => ({shown}) ? performance.now() : 0", polling="raf")
    return float(handle.json_value())
