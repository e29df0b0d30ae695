"""The console of a server with keys, of one whose journal is off, of one that stops, and behind a prefix."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from orsay_client import Client
from playwright.sync_api import Browser, Route, expect

from tests.support.server_process import ServerProcess

from .browsing import ELSEWHERE, Visitor, visiting
from .conftest import console_server

pytestmark = pytest.mark.process

KEY = "a-key-of-alice"
OTHER = "a-key-of-bob-x"


@pytest.fixture(scope="module")
def console() -> Iterator[ServerProcess]:
    """Two keys, no journal."""
    with console_server("off", api_keys=f'["{KEY}", "{OTHER}"]') as process:
        yield process


def give_key(visitor: Visitor, key: str) -> None:
    dialog = visitor.page.get_by_role("dialog", name="API key")
    dialog.get_by_role("textbox", name="Key").fill(key)
    dialog.get_by_role("button", name="Use this key").click()


def test_the_console_asks_for_a_key_and_forgets_it_with_the_tab(visitor: Visitor) -> None:
    visitor.allowed = ["401"]
    page = visitor.open("/environments")
    dialog = page.get_by_role("dialog", name="API key")
    dialog.wait_for()
    visitor.check_look("key", documented=False)
    give_key(visitor, "wrong")
    dialog.get_by_text("The server refused this key.").wait_for()
    give_key(visitor, KEY)
    page.get_by_role("article", name="Kitchen").wait_for()
    page.reload()
    page.get_by_role("article", name="Kitchen").wait_for()
    stored = page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]")
    assert KEY in stored[0] and KEY not in stored[1] + stored[2]
    page.get_by_role("button", name="Change the API key").click()
    page.get_by_role("button", name="Forget the key").click()
    dialog.wait_for()
    assert KEY not in page.evaluate("JSON.stringify(sessionStorage)")


def test_who_closes_the_dialog_sees_what_is_missing(visitor: Visitor) -> None:
    visitor.allowed = ["401"]
    page = visitor.open("/environments")
    page.get_by_role("dialog", name="API key").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("A key is needed").wait_for()
    visitor.check_accessibility()
    page.get_by_role("button", name="Enter a key").first.click()
    give_key(visitor, KEY)
    page.get_by_role("article", name="Kitchen").wait_for()


def test_the_playground_uses_the_key_and_code_does_not_show_it(visitor: Visitor) -> None:
    visitor.allowed = ["401"]
    page = visitor.open("/playground/kitchen")
    give_key(visitor, KEY)
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Make a pizza.").wait_for()
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    page.get_by_text("It glows.").wait_for()
    page.get_by_role("button", name="Copy as code").click()
    code = page.get_by_role("region", name="the Python code").inner_text()
    assert "ORSAY_API_KEY" in code and KEY not in code
    assert page.get_by_role("link", name="Its trajectory").count() == 0  # there is no journal


def test_a_key_sees_its_own_sessions_only(visitor: Visitor, console: ServerProcess) -> None:
    visitor.allowed = ["401"]
    page = visitor.open("/live")
    give_key(visitor, KEY)
    page.get_by_text("No session is open").wait_for()
    with (
        Client(console.url, api_key=OTHER, headers={"X-Orsay-Run": "of bob"}) as bob,
        Client(console.url, api_key=KEY, headers={"X-Orsay-Run": "of alice"}) as alice,
        bob.environment("kitchen").session(split="train", index=0),
        alice.environment("kitchen").session(split="train", index=0),
    ):
        page.get_by_role("row").filter(has_text="of alice").wait_for()
        assert page.get_by_text("of bob").count() == 0


def test_a_journal_in_trouble_is_shown_on_every_page(browser: Browser, tmp_path: Path) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nowhere"
    with console_server(nowhere) as process, visiting(browser, process.url, tmp_path) as visitor:
        page = visitor.open("/environments")
        page.get_by_role("alert").get_by_text("The journal cannot be written").wait_for()
        visitor.check_look("trouble", documented=False)
        page.get_by_role("link", name="Live").click()
        visitor.heading("Live")
        page.get_by_role("alert").get_by_text("The journal cannot be written").wait_for()


def test_a_server_that_stops_is_noticed_and_found_again(browser: Browser, tmp_path: Path) -> None:
    with console_server("off") as process, visiting(browser, process.url, tmp_path) as visitor:
        visitor.allowed = ["ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE"]
        visitor.allowed.append("load preload assets")  # axe reads style sheets once more, when it can
        page = visitor.open("/live")
        page.get_by_text("No session is open").wait_for()
        process.signal(signal.SIGTERM)
        process.wait()
        page.get_by_text("The live feed was interrupted").wait_for()
        visitor.check_accessibility()
        port = process.url.rpartition(":")[2]
        with console_server("off", port=port):
            expect(page.get_by_text("The live feed was interrupted")).to_have_count(0)
            page.get_by_text("No session is open").wait_for()


def test_a_page_that_no_key_would_help_does_not_ask_for_one(browser: Browser, tmp_path: Path) -> None:
    with console_server("off") as process:
        url = process.url.replace("127.0.0.1", ELSEWHERE)
        with visiting(browser, url, tmp_path) as visitor:
            visitor.allowed = ["403"]
            page = visitor.open("/environments")
            page.wait_for_load_state("load")
            assert [each for each in visitor.errors if each.startswith("error: Failed to load")] == []
            page.get_by_text("is no name of this server").wait_for()
            assert page.get_by_role("dialog").count() == 0
            visitor.check_accessibility()


def test_the_console_works_below_a_prefix_that_a_proxy_puts_before_it(
    visitor: Visitor, console: ServerProcess
) -> None:
    visitor.allowed = ["401"]
    page = visitor.page
    prefix = "/some/where"
    asked: list[str] = []

    def pass_on(route: Route) -> None:
        asked.append(route.request.url)
        route.continue_(url=route.request.url.replace(prefix, "", 1))

    page.route(f"{console.url}{prefix}/**", pass_on)
    page.goto(f"{console.url}{prefix}/console/playground/kitchen")
    give_key(visitor, KEY)
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Make a pizza.").wait_for()
    page.get_by_role("link", name="Live").click()
    visitor.heading("Live")
    assert page.url == f"{console.url}{prefix}/console/live"
    page.get_by_text("ready", exact=False).first.wait_for()
    assert [each for each in visitor.requests if each not in asked] == []
