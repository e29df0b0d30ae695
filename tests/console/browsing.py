"""A person at the console in a real browser: what they see, and what must never happen while they look."""

from __future__ import annotations

import importlib.resources
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from playwright.sync_api import Error as PlaywrightError

__all__ = ["ELSEWHERE", "SCHEMES", "WAIT_MS", "Visitor", "browser_problem", "chromium", "visiting"]

CHROMIUM = "/usr/bin/chromium"
ELSEWHERE = "console.test"
"""A name that leads to this machine, in the browser only."""
WAIT_MS = 60_000
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
_IMAGES = Path(__file__).parents[2] / "docs" / "images" / "console"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
_WATCH = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


@cache
def browser_problem() -> str | None:
    """Why there is no browser for tests; None when there is one. Installs Debian's where that is possible."""
    if not Path(CHROMIUM).exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "chromium"], capture_output=True, timeout=600, check=False
        )
    return None if Path(CHROMIUM).exists() else f"no browser: {CHROMIUM} is missing"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's chromium, driven by Playwright. No asynchronous test may run in this process meanwhile."""
    options = ["--disable-dev-shm-usage", f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=WAIT_MS)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One tab at one server.

    ``allowed`` holds pieces of console errors that a test brings about on purpose; ``requests`` are the
    addresses that were asked for, ``errors`` what the browser's console showed.
    """

    def __init__(self, page: Page, url: str, shots: Path) -> None:
        self.page = page
        self.url = url
        self.allowed: list[str] = []
        self._shots = shots
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("request", self._note)
        page.add_init_script(_WATCH)

    def open(self, path: str) -> Page:
        """Go to a path below ``/console``."""
        self.page.goto(f"{self.url}/console{path}", wait_until="domcontentloaded")
        return self.page

    def heading(self, name: str) -> None:
        """Wait until the page of that heading is shown."""
        self.page.get_by_role("heading", name=name, level=1).wait_for()

    def check(self) -> None:
        """Nothing was asked of another server, the policy forbade nothing, and nothing failed."""
        origin = urlsplit(self.url).netloc
        foreign = [
            each
            for each in self.requests
            if not each.startswith(("data:", "blob:")) and urlsplit(each).netloc != origin
        ]
        assert foreign == []
        assert self.page.evaluate("window.__violations") == []
        unexpected = [each for each in self.errors if not any(part in each for part in self.allowed)]
        assert unexpected == []

    def check_accessibility(self) -> None:
        """What axe finds wrong with the page as it is now: names, roles, contrast. It finds nothing."""
        self.page.evaluate(_axe())
        found: dict[str, Any] = self.page.evaluate(
            "values => axe.run(document, {runOnly: {type: 'tag', values}, resultTypes: ['violations']})",
            _RULES,
        )
        broken = [
            f"{each['id']}: {each['help']}\n  "
            + "\n  ".join(f"{node['html'][:200]} | {node['failureSummary']}" for node in each["nodes"][:5])
            for each in found["violations"]
        ]
        assert broken == [], "\n".join(broken)

    def in_both_schemes(self, look: Callable[[str], None]) -> None:
        """``look("light")``, then ``look("dark")``, with the system's colours changed in between."""
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            self.page.wait_for_function(
                "want => document.documentElement.dataset.mantineColorScheme === want", arg=scheme
            )
            look(scheme)
        self.page.emulate_media(color_scheme="light")

    def check_look(self, name: str, *, documented: bool = True) -> None:
        """Accessibility and a picture of the page, light and dark; ``documented`` as in ``shoot``."""

        def look(scheme: str) -> None:
            self.check_accessibility()
            self.shoot(f"{name}-{scheme}", documented=documented)

        self.in_both_schemes(look)

    def shoot(self, name: str, *, documented: bool = True) -> Path:
        """A picture of what is visible: with ORSAY_SCREENSHOTS=1 for the documentation, else for nobody."""
        kept = documented and os.environ.get("ORSAY_SCREENSHOTS") == "1"
        folder = _IMAGES if kept else self._shots
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        taken = self.page.screenshot(animations="disabled", caret="hide")
        if kept:
            with Image.open(io.BytesIO(taken)) as picture:
                picture.convert("RGB").quantize(128).save(path, optimize=True)
        else:
            path.write_bytes(taken)
        return path

    def sideways_px(self) -> int:
        """By how much the page is wider than the window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))

    def api(self, path: str, key: str | None = None) -> Any:
        """What the console's API answers to this tab, and not to the page in it."""
        answer = self.page.request.get(
            f"{self.url}/console/api/{path}", headers={} if key is None else {"X-API-Key": key}
        )
        assert answer.ok, answer.text()
        return json.loads(answer.text())

    def describe(self) -> str:
        """Where the tab is, what it showed and complained of, and what it asked for last."""
        try:
            seen = self.page.locator("body").aria_snapshot(timeout=5_000)
        except PlaywrightError as problem:
            seen = f"nothing: {problem}"
        parts = [self.page.url, seen, *self.errors, *self.requests[-20:]]
        return "\n".join(parts)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)


@contextmanager
def visiting(
    browser: Browser, url: str, shots: Path, *, phone: bool = False, zone: str = "UTC"
) -> Iterator[Visitor]:
    """A tab with nothing remembered; at its end, all that it did is checked."""
    size: Any = {"width": 390, "height": 844} if phone else {"width": 1200, "height": 800}
    context = browser.new_context(
        viewport=size,
        color_scheme="light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id=zone,
        has_touch=phone,
    )
    context.set_default_timeout(WAIT_MS)
    try:
        visitor = Visitor(context.new_page(), url, shots)
        yield visitor
        visitor.check()
        visitor.page.goto("about:blank")  # as a person leaves: sessions of the playground end
    finally:
        context.close()


@cache
def _axe() -> str:
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text()
