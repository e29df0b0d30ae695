"""What the server does now, as a person sees it while somebody else plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from orsay_client import Client, Fault, Session
from playwright.sync_api import expect

from tests.support.server_process import ServerProcess

from .browsing import Visitor

pytestmark = pytest.mark.process


@contextmanager
def playing(url: str, run: str, **options: Any) -> Iterator[Session]:
    """Somebody else's session of the kitchen."""
    labels = {"X-Orsay-Run": f'{{"run": "{run}", "step": 1}}'}
    with Client(url, headers=labels) as client, client.environment("kitchen").session(**options) as session:
        yield session


def test_an_idle_server_says_what_will_appear_here(visitor: Visitor) -> None:
    page = visitor.open("/live")
    visitor.heading("Live")
    page.get_by_text("No session is open").wait_for()
    page.get_by_text("None since the server started.").wait_for()
    visitor.check_look("live-empty", documented=False)
    page.get_by_role("link", name="playground").click()
    visitor.heading("Playground: GuessEnvironment")


def test_sessions_calls_and_faults_appear_as_they_come(visitor: Visitor, console: ServerProcess) -> None:
    page = visitor.open("/live")
    visitor.heading("Live")
    with playing(console.url, "first run", split="train", index=1) as one:
        row = page.get_by_role("row").filter(has_text="first run")
        row.get_by_text("ready").wait_for()
        one.call("look", {})
        expect(row.get_by_role("cell", name="0.5")).to_have_count(1)
        with playing(console.url, "second run", split="test", index=0) as two:
            two.call("look", {})
            page.get_by_role("row").filter(has_text="second run").wait_for()
            with suppress(Fault):
                two.call("burn", {})
            fault = page.get_by_role("region", name="Table of faults").get_by_role("row").last
            expect(fault).to_contain_text("the kitchen is on fire")
            expect(fault).to_contain_text("tool_error")
            expect(page.get_by_role("region", name="Sessions", exact=True)).to_contain_text("2 ready")
            two.call("serve", {"words": "Well"})
            page.get_by_role("row").filter(has_text="second run").get_by_text("finished").wait_for()
            visitor.check_look("live")
            search = page.get_by_role("searchbox", name="Search the sessions")
            search.fill("second")
            expect(row).to_have_count(0)
            search.fill("no such thing")
            page.get_by_text("No session matches").wait_for()
            search.fill("")
        expect(page.get_by_role("row").filter(has_text="second run")).to_have_count(0)
        row.wait_for()
    page.get_by_text("No session is open").wait_for()


def test_a_paused_page_does_not_change(visitor: Visitor, console: ServerProcess) -> None:
    page = visitor.open("/live")
    page.get_by_text("No session is open").wait_for()
    page.get_by_role("button", name="Pause").click()
    with playing(console.url, "unseen", split="train", index=0):
        other = page.context.new_page()
        other.goto(f"{console.url}/console/live")
        other.get_by_role("row").filter(has_text="unseen").wait_for()
        page.get_by_text("No session is open").wait_for()
        other.close()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("row").filter(has_text="unseen").wait_for()


def test_a_session_is_ended_from_here_after_a_question(visitor: Visitor, console: ServerProcess) -> None:
    page = visitor.open("/live")
    with playing(console.url, "too long", split="train", index=0) as session:
        row = page.get_by_role("row").filter(has_text="too long")
        row.get_by_role("button", name="End the session of Kitchen").click()
        visitor.check_accessibility()
        page.get_by_role("button", name="Keep session").click()
        page.get_by_role("dialog").wait_for(state="hidden")
        row.get_by_role("button", name="End the session of Kitchen").press("Enter")
        page.get_by_role("button", name="End the session", exact=True).click()
        page.get_by_text("No session is open").wait_for()
        with pytest.raises(Fault) as ended:
            session.call("look", {})
        assert ended.value.fault_class == "session_gone"


def test_a_session_of_the_list_leads_to_its_trajectory(visitor: Visitor, console: ServerProcess) -> None:
    page = visitor.open("/live")
    with playing(console.url, "followed", split="train", index=0) as session:
        session.call("look", {})
        page.get_by_role("row").filter(has_text="followed").get_by_role("link").first.click()
        page.wait_for_url("**/console/trajectories/*")
        id = page.url.rpartition("/")[2]
        assert visitor.api(f"trajectories/{id}")["run"] == "followed"
        page.go_back()
        visitor.heading("Live")


def test_tables_scroll_inside_a_phone(phone: Visitor, console: ServerProcess) -> None:
    page = phone.open("/live")
    with playing(console.url, "on the way", split="train", index=0):
        page.get_by_role("row").filter(has_text="on the way").wait_for()
        assert phone.sideways_px() == 0
        phone.check_accessibility()
