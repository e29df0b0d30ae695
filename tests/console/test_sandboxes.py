"""Sandboxes of a session, as a person sees them: what ran in them, and those that live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from orsay_client import Client, Session
from playwright.sync_api import expect

from tests.support.engine import BASE, ROOT, needs_engine
from tests.support.server_process import ServerProcess, server

from .browsing import WAIT_MS, Visitor

pytest.importorskip("openreward", reason="the environment needs the package openreward")

pytestmark = needs_engine

expect.set_options(timeout=WAIT_MS)

ENVIRONMENTS = str(ROOT / "tests" / "support" / "sandbox_environments.py")
IMAGE = "generalreasoning/python-ds:3.12-tools"


@pytest.fixture(scope="module")
def console(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    (data / "tasks" / "sum").mkdir(parents=True)
    (data / "tasks" / "sum" / "numbers.txt").write_text("20\n22\n")
    with server(
        ENVIRONMENTS,
        options=["--sandboxes", "docker"],
        imported=("openreward.toolsets",),
        journal=str(journal),
        sandboxes_images={IMAGE: BASE},
        sandboxes_data={"Tests/Workroom": str(data)},
    ) as process:
        yield process


@contextmanager
def playing(url: str) -> Iterator[Session]:
    with Client(url) as client, client.environment("workroom").session(split="train", index=0) as session:
        yield session


def test_a_call_shows_what_it_ran_as_a_terminal(visitor: Visitor, console: ServerProcess) -> None:
    with playing(console.url) as session:
        session.call("look", {"cmd": "echo '<b>20 + 22</b>'; printf '\\033[31mred\\033[0m\\n'; exit 3"})
        session.call("look", {"cmd": "seq 1 9000"})
        session.call("look", {"cmd": "echo 42 > /tmp/answer.txt"})
        session.call("submit", {})
    id = visitor.api("trajectories")["items"][0]["id"]
    page = visitor.open(f"/trajectories/{id}")
    first = page.get_by_role("region", name="Sandbox of call 1")
    expect(first).to_contain_text("$echo '<b>20 + 22</b>'")
    expect(first).to_contain_text("<b>20 + 22</b>\nred")
    expect(first).to_contain_text("exit 3, ")
    second = page.get_by_role("region", name="Sandbox of call 2")
    expect(second).to_contain_text("the beginning of 42.9 KiB")
    second.get_by_role("button", name="All").click()
    expect(second).to_contain_text("\n2000\n")
    grading = page.get_by_role("region", name="Sandbox of call 4")
    expect(grading).to_contain_text("# read /tmp/answer.txt, 3 B")
    expect(grading).to_contain_text("paste -sd+ /orwd_data/numbers.txt")
    outside = page.get_by_role("region", name="Commands outside of calls")
    expect(outside).to_contain_text(f"# {BASE} started in ")
    expect(outside).to_contain_text("with 0.5 CPU, 1 GiB, open network")
    expect(outside).to_contain_text("it was deleted")
    first.scroll_into_view_if_needed()
    visitor.check_look("sandbox", documented=False)


def test_living_sandboxes_are_listed_and_ended(visitor: Visitor, console: ServerProcess) -> None:
    page = visitor.open("/live")
    page.get_by_text("No session is open").wait_for()
    expect(page.get_by_role("heading", name="Sandboxes now")).to_have_count(0)
    with playing(console.url) as session:
        session.call("look", {"cmd": "true"})
        row = page.get_by_role("region", name="Table of sandboxes").get_by_role("row").filter(has_text=BASE)
        expect(row).to_contain_text("living")
        expect(row).to_contain_text("1 GiB")
        expect(row.get_by_role("cell").nth(8)).to_have_text("1")
        visitor.check_accessibility()
        row.get_by_role("button", name="End the sandbox").click()
        page.get_by_role("button", name="Keep sandbox").click()
        row.get_by_role("button", name="End the sandbox").click()
        page.get_by_role("dialog").get_by_role("button", name="End the sandbox").click()
        page.get_by_role("heading", name="Sandboxes now").wait_for(state="hidden")
        page.get_by_text("The sandbox has ended.").wait_for()
        visitor.check_accessibility()


def test_a_sandbox_belongs_to_the_key_that_made_it(tmp_path: Path) -> None:
    settings = {"environment": "Tests/Workroom", "image": BASE, "machine_size": "0.5:1"}
    options = ["--sandboxes", "docker"]
    keys = {"first": {"X-API-Key": "the-first-key"}, "second": {"X-API-Key": "the-second-key"}}
    with (
        server(
            ENVIRONMENTS,
            options=options,
            imported=("openreward.toolsets",),
            api_keys=[each["X-API-Key"] for each in keys.values()],
        ) as process,
        httpx.Client(base_url=process.url, timeout=60) as http,
    ):
        made = http.post("/create_sandbox", json=settings, headers=keys["first"]).text
        sid = made.rpartition('"sid":"')[2].partition('"')[0]
        end = f"/console/api/sandboxes/{sid}/end"
        assert http.post(end, headers=keys["second"]).status_code == 404
        assert sid in snapshot(http, keys["first"]) and sid not in snapshot(http, keys["second"])
        assert http.post(end, headers=keys["first"]).json() == {"id": sid}
        gone = http.post("/ping", headers={**keys["first"], "X-Session-ID": sid})
        assert gone.status_code == 410 and "ended in the console" in gone.text


def snapshot(http: httpx.Client, key: dict[str, str]) -> str:
    with http.stream("GET", "/console/api/live", headers=key) as answer:
        return next(line for line in answer.iter_lines() if line.startswith("data:"))
