"""The pages /docs and /redoc in a real browser and by hand: all that they show comes from this server."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.server_process import ENVIRONMENTS, ServerProcess, server

from .api import raw_get
from .browsing import Visitor
from .conftest import console_server

pytestmark = pytest.mark.process

PAGES = ("/docs", "/redoc")
FILES = (
    "/docs/swagger-ui.js",
    "/docs/swagger-ui.css",
    "/docs/docs.js",
    "/docs/page.css",
    "/docs/redoc.standalone.js",
    "/docs/nonce.js",
    "/docs/redoc.js",
    "/docs/licenses.md",
)


@pytest.fixture(scope="module")
def console() -> Iterator[ServerProcess]:
    """Without keys, and with the endpoints of every protocol."""
    with console_server("off", also="openenv,mcp") as process:
        yield process


def shown_by_swagger(page: Page) -> None:
    page.get_by_role("heading", name="Orsay").wait_for()
    page.locator("#operations-sessions-create").wait_for()


def shown_by_redoc(page: Page) -> None:
    page.get_by_role("heading", name="Orsay").wait_for()
    page.get_by_role("menuitem", name="sessions").first.wait_for()


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
def test_swagger_ui_shows_the_endpoints_and_tries_them(
    visitor: Visitor, console: ServerProcess, path: str
) -> None:
    page = visitor.page
    page.goto(f"{console.url}{path}")
    shown_by_swagger(page)
    page.locator("#operations-sessions-create").get_by_role("button").first.click()
    page.get_by_text("Open a session", exact=False).first.wait_for()
    ids = page.locator("#operations-sessions-create_session")
    ids.get_by_role("button").first.click()
    ids.get_by_role("button", name="Try it out").click()
    ids.get_by_role("button", name="Execute").click()
    answered = ids.locator(".live-responses-table .response-col_status")
    expect(answered.last).to_contain_text("200")  # a POST of the server's own page
    page.get_by_role("heading", name="Schemas").wait_for()


@pytest.mark.parametrize("path", ["/redoc", "/redoc/"])
def test_redoc_shows_the_endpoints_and_searches_them(
    visitor: Visitor, console: ServerProcess, path: str
) -> None:
    page = visitor.page
    page.goto(f"{console.url}{path}")
    shown_by_redoc(page)
    page.get_by_placeholder("Search...").fill("idempotency")
    page.get_by_role("search").get_by_role("menuitem").first.wait_for()
    colour = "getComputedStyle(document.querySelector('.menu-content')).backgroundColor"
    assert page.evaluate(colour) == "rgb(250, 250, 250)"  # the styles that it makes are in force


@pytest.mark.parametrize(("path", "shown"), [("/docs", shown_by_swagger), ("/redoc/", shown_by_redoc)])
def test_they_work_below_a_prefix_that_a_proxy_puts_before_them(
    visitor: Visitor, console: ServerProcess, path: str, shown: object
) -> None:
    page, prefix = visitor.page, "/some/where"
    asked: list[str] = []

    def pass_on(route: Route) -> None:
        asked.append(route.request.url)
        route.continue_(url=route.request.url.replace(prefix, "", 1))

    page.route(f"{console.url}{prefix}/**", pass_on)
    page.goto(f"{console.url}{prefix}{path}")
    assert callable(shown)
    shown(page)
    network = [each for each in visitor.requests if not each.startswith(("blob:", "data:"))]
    assert [each for each in network if each not in asked] == []


def test_a_strict_policy_holds_for_the_pages(console: ServerProcess) -> None:
    nonces = set()
    for path in PAGES:
        answer = httpx.get(console.url + path)
        policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["connect-src"] == "'self'" and policy["frame-ancestors"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        nonces.add(policy["style-src"])
        assert "http://" not in answer.text and "https://" not in answer.text
        assert httpx.head(console.url + path).status_code == 200
        assert httpx.post(console.url + path).headers["allow"] == "GET, HEAD"
    assert len(nonces) == 2


def test_files_are_compressed_and_known_again(console: ServerProcess) -> None:
    for path in FILES:
        status, headers, body = raw_get(console.url, path)
        _, packed_headers, packed = raw_get(console.url, path, **{"Accept-Encoding": "gzip"})
        assert status == 200 and headers["x-content-type-options"] == "nosniff"
        if packed_headers.get("content-encoding") == "gzip":
            packed = gzip.decompress(packed)
        assert packed == body
        again = raw_get(console.url, path, **{"If-None-Match": headers["etag"]})
        assert again[0] == 304 and again[2] == b""


def test_nothing_else_is_there(console: ServerProcess) -> None:
    for path in (
        "/docs/x.js",
        "/docs/../app.py",
        "/docs/%2e%2e/app.py",
        "/docs/docs.js/x",
        "/redoc/redoc.js",
    ):
        assert raw_get(console.url, path)[0] == 404


def test_with_keys_they_want_one() -> None:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", api_keys=["the-key"], console="off") as own:
        for path in (*PAGES, *FILES):
            assert httpx.get(own.url + path).status_code == 401
            assert httpx.get(own.url + path, headers={"X-API-Key": "the-key"}).status_code == 200


def test_the_hub_may_show_the_page_of_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "me-a-space.hf.space")
    with server(f"{ENVIRONMENTS}:Plain", runtime="local") as own:
        policy = httpx.get(f"{own.url}/docs").headers["content-security-policy"]
        assert policy.endswith("frame-ancestors 'self' https://huggingface.co")
