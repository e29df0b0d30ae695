"""The list of trajectories, and the page of one, as a person sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.server_process import ServerProcess

from .browsing import WAIT_MS, Visitor, visiting
from .conftest import console_server
from .recorded import Recorded

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("recorded")]

expect.set_options(timeout=WAIT_MS)

ROWS = 25  # of a page of the list


def rows(page: Page) -> list[str]:
    """Ids of the trajectories in the list."""
    found: list[str] = page.locator("[data-row]").evaluate_all("all => all.map(each => each.dataset.row)")
    return found


def shows(page: Page, ids: list[str]) -> None:
    """Wait until the list holds these and no others."""
    page.wait_for_function(
        "want => JSON.stringify([...document.querySelectorAll('[data-row]')].map(each => each.dataset.row))"
        " === JSON.stringify(want)",
        arg=ids,
    )


def wanted(visitor: Visitor, query: str, rows: int = ROWS) -> list[str]:
    """What the API says that the list must hold."""
    found = [each["id"] for each in visitor.api(f"trajectories?limit={rows}&{query}")["items"]]
    assert found
    return found


def test_the_list_begins_with_the_newest_and_goes_back_in_time(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories")
    visitor.heading("Trajectories")
    newest = wanted(visitor, "")
    shows(page, newest)
    assert newest[:3] == [recorded["trouble"], recorded["better"], recorded["plain"]]
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="cave train/8"))
    expect(row).to_contain_text("time_limit")
    expect(row).to_contain_text("made by hand")
    visitor.check_look("trajectories")
    page.get_by_role("link", name="Older").click()
    shows(page, wanted(visitor, f"before={newest[-1]}"))
    expect(page).to_have_url(re.compile(f"before={newest[-1]}$"))
    page.reload()
    shows(page, wanted(visitor, f"before={newest[-1]}"))
    page.get_by_role("link", name="Newest").click()
    shows(page, newest)
    page.go_back()
    page.go_back()
    shows(page, newest)


def test_filters_are_in_the_address_and_the_back_button_takes_them_away(visitor: Visitor) -> None:
    page = visitor.open("/trajectories")
    page.get_by_label("Environment").select_option("doors")
    shows(page, wanted(visitor, "environment=doors"))
    page.get_by_label("Fault").select_option("any")
    both = wanted(visitor, "environment=doors&fault=any")
    shows(page, both)
    page.get_by_label("Finished").select_option("false")
    expect(page).to_have_url(re.compile(r"\?environment=doors&fault=any&finished=false$"))
    shows(page, wanted(visitor, "environment=doors&fault=any&finished=false"))
    page.go_back()
    shows(page, both)
    expect(page.get_by_label("Finished")).to_have_value("")
    page.reload()
    shows(page, both)
    expect(page.get_by_label("Fault")).to_have_value("any")
    page.get_by_role("button", name="Clear").click()
    shows(page, wanted(visitor, ""))


def test_rewards_runs_tasks_and_steps_can_be_typed(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories")
    page.get_by_label("Reward from").fill("0.2")
    page.get_by_label("Reward to").fill("0.9")
    shows(page, [recorded["trouble"]])
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("combobox", name="Run").fill("made by hand")
    page.get_by_role("combobox", name="Run").press("Enter")
    shows(page, [recorded["trouble"], recorded["better"], recorded["plain"]])
    page.get_by_role("button", name="More").click()
    page.get_by_label("Task").fill("train:7")
    shows(page, [recorded["better"], recorded["plain"]])
    page.get_by_label("Step of the run").fill("4")
    page.get_by_role("heading", name="No matching trajectories").wait_for()
    visitor.check_accessibility()
    page.get_by_role("button", name="Clear all filters").click()
    shows(page, wanted(visitor, ""))


def test_times_are_those_of_the_person(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories?since=2026-05-30T00:00")  # the browser of the tests is in UTC
    shows(page, [recorded["trouble"], recorded["better"], recorded["plain"]])
    page.get_by_label("Started since").fill("2026-05-31T00:00")
    page.get_by_role("heading", name="No matching trajectories").wait_for()


def test_a_word_of_a_message_is_found(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories")
    visitor.heading("Trajectories")
    page.keyboard.press("/")
    field = page.get_by_label("Text")
    expect(field).to_be_focused()
    field.press_sequentially("hello")
    shows(page, [recorded["better"]])
    expect(page).to_have_url(re.compile(r"\?text=hello$"))
    page.go_back()
    expect(field).to_have_value("")


def test_everything_is_reached_with_the_keyboard(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories?run=made+by+hand")
    shows(page, [recorded["trouble"], recorded["better"], recorded["plain"]])
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_text("Two rollouts of one task are selected.").wait_for()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/trajectories/{recorded['better']}")
    page.locator("[data-step]").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#step-2")).to_be_focused()
    page.keyboard.press("n")
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.wait_for_url(f"**/trajectories/{recorded['plain']}")
    page.keyboard.press("p")
    page.wait_for_url(f"**/trajectories/{recorded['better']}")
    page.get_by_role("link", name="Older").wait_for()
    page.keyboard.press("p")
    page.wait_for_url(f"**/trajectories/{recorded['trouble']}")
    visitor.heading("cave train/8")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys of this page")
    help_.get_by_text("back to the list").wait_for()
    visitor.check_accessibility()
    page.keyboard.press("u")  # keys rest while the dialog is open
    page.keyboard.press("Escape")
    help_.wait_for(state="hidden")
    page.keyboard.press("u")
    page.wait_for_url("**/trajectories?run=made+by+hand")


def follow(page: Page, name: str, id: str) -> None:
    """Go on to that trajectory, once the link leads there: what is beside this one comes after it."""
    link = page.get_by_role("link", name=name)
    expect(link).to_have_attribute("href", re.compile(f"/trajectories/{id}"))
    link.click()
    page.wait_for_url(f"**/trajectories/{id}*")


def test_the_way_to_older_ones_goes_on_where_a_page_of_the_list_ends(visitor: Visitor) -> None:
    page = visitor.open("/trajectories?environment=doors")
    ids = wanted(visitor, "environment=doors", ROWS + 2)
    shows(page, ids[:ROWS])
    page.locator("[data-row]").last.click()
    page.wait_for_url(f"**/trajectories/{ids[ROWS - 1]}")
    for id in ids[ROWS:]:
        follow(page, "Older", id)
    follow(page, "Newer", ids[ROWS])
    page.get_by_role("link", name="All trajectories").click()
    shows(page, ids[:ROWS])


def test_one_trajectory_shows_the_whole_episode(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/{recorded['trouble']}")
    visitor.heading("cave train/8")
    facts = page.get_by_role("region", name="Facts")
    for text in ("time_limit", "0.5", "made by hand", "deleted by the client", "made/1", "12.5 s", "250 ms"):
        expect(facts).to_contain_text(text)
    expect(page.get_by_role("region", name="Messages")).to_contain_text("One of them is right.")
    calls = page.get_by_role("region", name="Calls").get_by_role("listitem")
    expect(calls).to_have_count(4)
    expect(calls.nth(0)).to_contain_text("reward 0.5")
    expect(calls.nth(0)).to_contain_text("502 ms (queue 2 ms · run 400 ms · stream 100 ms)")
    expect(calls.nth(0)).to_contain_text("You look: around")
    picture = calls.nth(1).get_by_role("img", name="Image 1")
    assert picture.evaluate("each => each.naturalWidth") == 48
    expect(calls.nth(2)).to_contain_text("The tool did not run")
    expect(calls.nth(2)).to_contain_text("'sideways' is not a direction")
    fault = calls.nth(3).get_by_role("alert")
    expect(fault).to_contain_text("Fault: time_limit")
    expect(fault).to_contain_text("longer than 1 s")
    expect(fault).to_contain_text("abc123")
    assert "def f():\n    return 1" in calls.nth(3).inner_text()
    page.get_by_role("region", name="Rewards").evaluate("each => each.scrollIntoView()")
    visitor.check_look("trajectory")


def test_a_result_after_the_end_is_marked_as_discarded(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/{recorded['better']}")
    calls = page.get_by_role("region", name="Calls").get_by_role("listitem")
    expect(calls.nth(1)).to_contain_text("finished")
    expect(calls.nth(1)).not_to_contain_text("discarded")
    expect(calls.nth(2)).to_contain_text("discarded")
    rewards = page.get_by_role("img", name="Rewards: call 1 0, call 2 1, call 3 –")
    rewards.wait_for()
    visitor.check_accessibility()


def test_a_call_has_an_address_of_its_own(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/{recorded['better']}#step-3")
    expect(page.locator("#step-3")).to_be_focused()
    page.get_by_role("link", name="Link to call 1").click()
    expect(page.locator("#step-1")).to_be_focused()
    assert page.url.endswith(f"/trajectories/{recorded['better']}#step-1")


def test_a_trajectory_leads_to_the_others_of_its_task(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/{recorded['better']}")
    page.get_by_role("link", name="train/7").click()
    shows(page, [recorded["better"], recorded["plain"]])
    page.go_back()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("menuitem", name="reward 0, 2 calls").click()
    page.wait_for_url(f"**/trajectories/diff?a={recorded['better']}&b={recorded['plain']}")
    visitor.heading("Compare cave train/7")


def test_a_trajectory_is_copied_as_json(visitor: Visitor, recorded: Recorded) -> None:
    visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.open(f"/trajectories/{recorded['plain']}")
    page.get_by_role("button", name="Copy the trajectory as JSON").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == visitor.api(
        f"trajectories/{recorded['plain']}"
    )


def test_what_fits_the_filters_is_saved_as_jsonl(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open("/trajectories?run=made+by+hand")
    shows(page, [recorded["trouble"], recorded["better"], recorded["plain"]])

    def save(what: str) -> list[dict[str, object]]:
        page.get_by_role("button", name="Save").click()
        with page.expect_download() as saved:
            page.get_by_role("menuitem", name=what).click()
        return [json.loads(line) for line in saved.value.path().read_text().splitlines()]

    whole = save("Everything recorded")
    assert {each["id"] for each in whole} == {recorded["trouble"], recorded["better"], recorded["plain"]}
    conversations = save("Conversations for training")
    assert len(conversations) == 2  # not the one that was lost to a fault
    assert all("messages" in each for each in conversations)


def test_a_session_that_is_played_grows_on_the_page(visitor: Visitor, console: ServerProcess) -> None:
    session = {"X-Session-ID": "played-now", "X-Orsay-Run": '{"run": "live run"}'}
    with httpx.Client(base_url=console.url, headers=session, timeout=60) as http:
        opened = {"env_name": "kitchen", "split": "train", "index": 1}
        assert http.post("/create", json=opened).status_code == 200
        page = visitor.open("/trajectories?run=live+run")
        page.get_by_role("link", name="Kitchen train/1").click()
        expect(page.get_by_role("region", name="Facts")).to_contain_text("running")
        page.get_by_text("No call yet.").wait_for()
        http.post("/kitchen/call", json={"name": "serve", "input": {"words": "enjoy your soup"}})
        page.get_by_text("Served: enjoy your soup").wait_for()
        http.post("/delete")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("finished")


def test_what_is_not_there_is_shown(visitor: Visitor) -> None:
    visitor.allowed.append("404")
    page = visitor.open("/trajectories/123")
    page.get_by_role("alert").get_by_text("the journal has nothing at").wait_for()
    visitor.check_accessibility()


def test_a_server_that_keeps_no_journal_says_how_to_keep_one(browser: Browser, tmp_path: Path) -> None:
    with console_server("off") as process, visiting(browser, process.url, tmp_path) as visitor:
        visitor.allowed.append("409")
        for path in ("/trajectories", "/runs", "/tasks", "/evaluations"):
            page = visitor.open(path)
            page.get_by_role("heading", name="Nothing is recorded").wait_for()
            page.get_by_text("ORSAY_JOURNAL=auto").wait_for()
        visitor.check_accessibility()


def test_an_empty_journal_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with (
        console_server(str(tmp_path / "empty.db")) as process,
        visiting(browser, process.url, tmp_path) as visitor,
    ):
        for path, title in (
            ("/runs", "No runs yet"),
            ("/tasks", "No tasks played yet"),
            ("/evaluations", "No evaluations yet"),
            ("/trajectories", "No trajectories yet"),
        ):
            page = visitor.open(path)
            page.get_by_role("heading", name=title).wait_for()
            visitor.check_accessibility()
        page.get_by_role("link", name="Choose an environment").click()
        visitor.heading("Environments")


def test_trajectories_fit_a_phone(phone: Visitor, recorded: Recorded) -> None:
    page = phone.open("/trajectories")
    page.locator("[data-row]").first.wait_for()
    assert phone.sideways_px() == 0
    phone.check_accessibility()
    page.get_by_role("link", name="cave train/8").click()
    page.get_by_text("Fault: time_limit").first.wait_for()
    assert phone.sideways_px() == 0
    phone.check_accessibility()


def test_who_types_a_filter_and_goes_on_at_once_is_not_called_back(
    visitor: Visitor, recorded: Recorded
) -> None:
    visitor.page.add_init_script("window.requestIdleCallback = () => 0")  # no code is fetched ahead
    page = visitor.open("/trajectories?run=made+by+hand")
    shows(page, [recorded["trouble"], recorded["better"], recorded["plain"]])
    code = re.compile(r"/assets/Trajectory-.*\.js$")
    held: list[Route] = []
    page.route(code, lambda route: held.append(route))  # the code of the next page takes its time
    page.get_by_role("button", name="More").click()
    page.get_by_label("Task").fill("train:7")
    with page.expect_request(code):
        page.get_by_role("link", name="cave train/7").last.click()
    expect(page).to_have_url(re.compile("task=train%3A7"))
    # longer than the pause after which what was typed takes effect by itself
    page.evaluate("() => new Promise(done => setTimeout(done, 700))")
    held[0].continue_()
    visitor.heading("cave train/7")
    page.go_back()
    shows(page, [recorded["better"], recorded["plain"]])
