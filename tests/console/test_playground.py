"""Playing in the playground, as a person does it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.server_process import ServerProcess

from .browsing import WAIT_MS, Visitor, visiting

pytestmark = pytest.mark.process

expect.set_options(timeout=WAIT_MS)


def start(visitor: Visitor, path: str) -> Page:
    """A session of the task that the path names, ready to be played."""
    page = visitor.open(f"/playground/{path}")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("heading", name="Prompt").wait_for()
    return page


def calls(page: Page, count: int) -> None:
    """Wait until so many calls have their results."""
    expect(page.get_by_role("log").locator("ol > li")).to_have_count(count)
    expect(page.get_by_text("running…")).to_have_count(0)


def wait_for_end(visitor: Visitor, console: ServerProcess) -> None:
    """Wait until the visitor's only session has ended; those of other tests may still be open."""
    (sid,) = {sid for url in visitor.requests for sid in parse_qs(urlsplit(url).query).get("sid", [])}

    def status() -> int:
        return httpx.post(f"{console.url}/ping", headers={"X-Session-ID": sid}).status_code

    for _ in range(WAIT_MS // 100):
        if status() != 200:
            break
        visitor.page.wait_for_timeout(100)
    assert status() == 410


def play_guess(page: Page) -> int:
    """Halve the range until the number is found; how many guesses that took."""
    low, high = 1, 100
    for guess in range(1, 9):
        middle = (low + high) // 2
        field = page.get_by_role("textbox", name="Number")
        field.fill(str(middle))
        field.press("Enter")
        calls(page, guess)
        text = page.get_by_role("log").locator("li").last.inner_text()
        if "Correct" in text:
            return guess
        low, high = (middle + 1, high) if "higher" in text else (low, middle - 1)
    raise AssertionError("the number was never found")


def test_a_person_plays_guess_to_the_end_and_finds_the_trajectory(visitor: Visitor) -> None:
    page = visitor.open("/environments")
    page.get_by_role("link", name="Play GuessEnvironment").click()
    visitor.heading("Playground: GuessEnvironment")
    page.get_by_text("0 to 99,999").wait_for()
    page.get_by_role("textbox", name="Task", exact=True).fill("3")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("I am thinking of a whole number from").wait_for()
    guesses = play_guess(page)
    page.get_by_text("The episode is finished").wait_for()
    page.get_by_text(re.compile(r"Reward so far: 1(\.\d+)? \(last 1\)")).wait_for()
    visitor.check_look("playground")
    link = page.get_by_role("link", name="Its trajectory")
    id = (link.get_attribute("href") or "").rpartition("/")[2]
    link.click()
    page.wait_for_url(f"**/console/trajectories/{id}")
    found = visitor.api(f"trajectories/{id}")
    assert (found["run"], found["finished"], found["task_index"]) == ("playground", True, 3)
    assert [step["name"] for step in found["steps"] if step["kind"] == "call"] == ["guess"] * guesses
    page.go_back()
    visitor.heading("Playground: GuessEnvironment")


def test_the_trajectory_of_a_session_is_found_as_soon_as_the_journal_has_it(visitor: Visitor) -> None:
    asked: list[str] = []

    def late(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 2:
            route.continue_()
        else:
            route.fulfill(json={"items": [], "next": None, "unindexed": 0})

    visitor.page.route("**/console/api/trajectories?sid=*", late)
    page = start(visitor, "kitchen")
    link = page.get_by_role("link", name="Its trajectory")
    link.wait_for()
    id = (link.get_attribute("href") or "").rpartition("/")[2]
    sid = parse_qs(urlsplit(asked[-1]).query)["sid"][0]
    assert len(asked) == 3 and visitor.api(f"trajectories/{id}")["sid"] == sid
    page.get_by_role("button", name="End the session").click()
    link.click()
    visitor.heading("Kitchen train/0")


def test_the_task_is_part_of_the_address(visitor: Visitor) -> None:
    page = visitor.open("/playground/kitchen?split=test&index=0")
    assert page.get_by_role("combobox", name="Split").input_value() == "test"
    page.get_by_role("button", name="Random task").click()
    page.get_by_text("Make a cake.").wait_for()
    page.get_by_role("combobox", name="Split").click()
    page.get_by_role("option", name="train").click()
    page.get_by_role("textbox", name="Task", exact=True).fill("1")
    page.wait_for_url("**/playground/kitchen?split=train&index=1")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Make a soup.").wait_for()


def test_images_of_prompts_and_results_are_shown(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    drawn = "each => each.complete && each.naturalWidth"
    expect(page.get_by_role("img", name="Image 2")).to_have_count(1)
    assert page.get_by_role("img", name="Image 2").evaluate(drawn) == 48
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    page.get_by_text("It glows.").wait_for()
    calls(page, 1)
    assert page.get_by_role("log").get_by_role("img").evaluate(drawn) == 48
    page.get_by_text("Reward so far: 0.5").wait_for()


def test_a_fault_looks_like_one_and_brings_no_reward(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="burn").click()
    page.get_by_role("button", name="Call burn").click()
    alert = page.get_by_role("alert").filter(has_text="Fault: tool_error")
    alert.get_by_text("the kitchen is on fire").wait_for()
    alert.get_by_text("No result and no reward.").wait_for()
    page.get_by_text("Reward so far: none").wait_for()
    visitor.check_look("fault", documented=False)


def test_a_call_that_takes_too_long_is_cancelled(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="wait").click()
    page.get_by_role("button", name="Call wait").click()
    page.get_by_role("button", name="Cancel the call").click()
    page.get_by_text("Fault: cancelled").wait_for()


def test_the_last_message_is_a_tool_too(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="Last message").click()
    page.get_by_role("textbox", name="Message").fill("Enjoy,\nplease")
    page.get_by_role("textbox", name="Message").press("Control+Enter")
    page.get_by_text("Served: Enjoy,").wait_for()
    page.get_by_text("The episode is finished").wait_for()


def test_a_nested_form_is_filled_in_corrected_and_sent_as_the_tool_wants_it(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="order").click()
    form = page.get_by_role("tabpanel", name="order")
    call = form.get_by_role("button", name="Call order")
    expect(form.get_by_role("textbox", name="Spice")).to_have_value("2")  # a default
    form.get_by_role("textbox", name="Spice").fill("9")
    form.get_by_role("textbox", name="Street").first.fill("Xy")
    call.click()
    form.get_by_text("must be at most 5").first.wait_for()
    form.get_by_text("must have at least 3 characters").first.wait_for()
    form.get_by_text("is required").first.wait_for()  # the size
    calls(page, 0)
    visitor.check_look("form")
    form.get_by_role("textbox", name="Spice").fill("5")
    form.get_by_role("textbox", name="Street").first.fill("12 Long Street")
    form.get_by_role("combobox", name="Size").click()
    form.get_by_role("option", name="large").click()
    form.get_by_role("button", name="Add").first.click()
    form.get_by_role("textbox", name="Name").fill("basil")
    form.get_by_label("Vegetarian").check()
    form.get_by_role("textbox", name="Extras").fill('{"napkins": 2}')
    expect(form.get_by_text("must be at most 5")).to_have_count(0)
    call.click()
    calls(page, 1)
    sent = json.loads(page.get_by_role("log").get_by_text('"toppings"').last.inner_text())
    assert sent == {
        "size": "large",
        "address": {"street": "12 Long Street", "floor": None},
        "toppings": [{"name": "basil", "grams": 20}],
        "note": None,
        "spice": 5,
        "tip": None,
        "vegetarian": True,
        "gift": None,
        "payment": {"kind": "cash", "coins": 3},
        "extras": {"napkins": 2},
        "spot": [0, 0],
    }


def test_choices_between_models_show_the_fields_of_what_is_chosen(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="order").click()
    form = page.get_by_role("tabpanel", name="order")
    form.get_by_role("combobox", name="Size").click()
    form.get_by_role("option", name="small").click()
    form.get_by_role("textbox", name="Street").first.fill("12 Long Street")
    form.get_by_role("textbox", name="Tip").fill("1.5")
    form.get_by_role("textbox", name="Floor").first.fill("4")
    form.get_by_role("textbox", name="Note").fill("Ring twice")
    payment = form.get_by_role("combobox", name="Payment")
    payment.click()
    form.get_by_role("option", name="Card").click()
    form.get_by_role("textbox", name="Number").fill("4242")
    gift = form.get_by_role("combobox", name="Gift")
    gift.click()
    form.get_by_role("option", name="Address").click()
    form.get_by_role("textbox", name="Street").last.fill("1 Other Street")
    form.get_by_role("button", name="Call order").click()
    calls(page, 1)
    sent = json.loads(page.get_by_role("log").get_by_text('"toppings"').last.inner_text())
    assert sent["payment"] == {"kind": "card", "number": "4242"}
    assert sent["gift"] == {"street": "1 Other Street", "floor": None}
    assert sent["address"] == {"street": "12 Long Street", "floor": 4}
    assert (sent["tip"], sent["note"]) == (1.5, "Ring twice")


def test_what_is_less_common_in_a_schema_has_fields_too(visitor: Visitor) -> None:
    page = start(visitor, "warehouse")
    page.get_by_role("combobox", name="Tool").click()
    page.get_by_role("option", name="stock").click()
    page.get_by_role("textbox", name="Lot").fill("wrong")
    page.get_by_role("textbox", name="Share").fill("1")
    call = page.get_by_role("button", name="Call stock")
    call.click()
    page.get_by_text("must match ^[A-Z]-[0-9]+$").first.wait_for()
    page.get_by_text("must be less than 1").first.wait_for()
    page.get_by_text("is required").first.wait_for()  # the code
    visitor.check_accessibility()
    page.get_by_role("textbox", name="Lot").fill("Z-26")
    page.get_by_role("textbox", name="Share").fill("0.25")
    page.get_by_role("combobox", name="Level").click()
    page.get_by_role("option", name="small").click()
    page.get_by_role("combobox", name="Code").click()
    page.get_by_role("option", name="string").click()
    page.get_by_role("textbox", name="string").fill("seven")
    page.get_by_role("textbox", name="Anything").fill('[1, {"a": null}]')
    page.get_by_role("group", name="Inside").get_by_role("button", name="Add").click()
    page.get_by_role("textbox", name="Label").last.fill("lower")
    page.get_by_role("group", name="Sizes").get_by_role("button", name="Add").click()
    page.get_by_role("group", name="Sizes").get_by_role("combobox").click()
    page.get_by_role("option", name="large").click()
    call.click()
    calls(page, 1)
    sent = json.loads(page.get_by_role("log").get_by_text('"shelf"').last.inner_text())
    assert sent == {
        "kind": "dry",
        "level": "small",
        "counts": {},
        "shelf": {"label": "top", "inside": [{"label": "lower", "inside": []}]},
        "code": "seven",
        "bought": None,
        "sizes": ["large"],
        "grid": [],
        "anything": [1, {"a": None}],
        "lot": "Z-26",
        "share": 0.25,
    }


def test_dates_and_times_are_chosen_and_sent_with_the_zone_of_the_person(
    browser: Browser, console: ServerProcess, tmp_path: Path
) -> None:
    with visiting(browser, console.url, tmp_path, zone="Asia/Kolkata") as visitor:
        page = start(visitor, "warehouse")
        page.get_by_role("combobox", name="Tool").click()
        page.get_by_role("option", name="plan").click()
        call = page.get_by_role("button", name="Call plan")
        day, opens = page.get_by_label(re.compile("^Day")), page.get_by_label(re.compile("^Opens"))
        at, since = page.get_by_label("At", exact=True), page.get_by_label("Since", exact=True)
        expect(at).to_have_value("2026-05-30T14:30")  # a default, as clocks are here
        page.get_by_text("Default: 2026-01-02 03:04:05. In your time zone.").wait_for()
        call.click()
        expect(page.get_by_text("is required").locator("visible=true")).to_have_count(2)
        day.focus()
        page.keyboard.type("11")  # the day or the month, as the browser has them
        page.get_by_text("must be a whole date: day, month and year").first.wait_for()
        call.click()
        calls(page, 0)
        page.get_by_role("textbox", name="Mail").fill("nobody")
        page.get_by_text("must be an e-mail address").first.wait_for()
        page.get_by_role("textbox", name="Ticket").fill("12")
        page.get_by_text("must be of the format uuid").first.wait_for()
        visitor.check_look("dates", documented=False)
        day.focus()
        page.keyboard.type("06062026")
        expect(day).to_have_value("2026-06-06")
        opens.fill("08:15:00")
        page.get_by_role("textbox", name="Mail").fill("b@example.org")
        page.get_by_role("textbox", name="Ticket").fill("")
        page.get_by_role("group", name="Others").get_by_role("button", name="Add").click()
        page.get_by_role("group", name="Others").get_by_text("is required").first.wait_for()
        page.get_by_label("Others-1").fill("2026-07-01")
        expect(page.get_by_text("must be")).to_have_count(0)
        call.click()
        calls(page, 1)
        sent = json.loads(page.get_by_role("log").get_by_text('"opens"').last.inner_text())
        assert sent == {
            "day": "2026-06-06",
            "at": "2026-05-30T09:00:00Z",
            "opens": "08:15:00+05:30",
            "closes": None,
            "since": "2026-01-02T03:04:05",
            "others": ["2026-07-01"],
            "ticket": None,
            "mail": "b@example.org",
        }
        at.fill("2026-12-24T18:00")
        since.fill("2026-02-03T04:05:06")
        page.get_by_label("Closes").fill("22:00")
        call.click()
        calls(page, 2)
        sent = json.loads(page.get_by_role("log").get_by_text('"opens"').last.inner_text())
        assert sent["at"] == "2026-12-24T18:00:00+05:30"
        assert sent["since"] == "2026-02-03T04:05:06+05:30"
        assert sent["closes"] == "22:00:00+05:30"


def test_the_form_of_a_tool_keeps_what_was_typed_while_another_one_is_used(visitor: Visitor) -> None:
    page = start(visitor, "warehouse")
    tools = page.get_by_role("combobox", name="Tool")
    tools.click()
    page.get_by_role("option", name="find").click()
    page.get_by_role("textbox", name="What").fill("pears")
    tools.click()
    page.get_by_role("option", name="sweep").click()
    page.get_by_role("button", name="Call sweep").click()
    page.get_by_text("The tool returned no content.").wait_for()
    tools.click()
    page.get_by_role("option", name="find").click()
    page.get_by_role("button", name="Call find").click()
    page.get_by_text("No pears in 3 shelves.").wait_for()


def test_input_may_be_written_as_json_and_what_the_tool_refuses_is_shown(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="order").click()
    form = page.get_by_role("tabpanel", name="order")
    form.get_by_text("JSON", exact=True).click()
    text = form.get_by_role("textbox", name="Input")
    text.fill("{")
    form.get_by_text("This is not JSON").wait_for()
    expect(form.get_by_role("button", name="Call order")).to_be_disabled()
    text.fill('{"size": "huge"}')
    form.get_by_role("button", name="Call order").click()
    calls(page, 1)
    page.get_by_role("log").get_by_text("input_validation").wait_for()
    page.get_by_text("Reward so far: none").wait_for()


@pytest.mark.parametrize("language", ["Python", "curl"])
def test_a_session_as_code_does_the_same_again(visitor: Visitor, language: str) -> None:
    page = start(visitor, "kitchen?split=test&index=0")
    page.get_by_role("tab", name="Last message").click()
    sentence = 'it\'s "good" → $HOME\n\\ ok'
    page.get_by_role("textbox", name="Message").fill(sentence)
    page.get_by_role("button", name="Call serve").click()
    calls(page, 1)
    page.get_by_role("button", name="Copy as code").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(language, exact=True).click()
    name = {"Python": "the Python code", "curl": "the shell script"}[language]
    code = dialog.get_by_role("region", name=name).inner_text()
    visitor.check_accessibility()
    command = {"Python": [sys.executable, "-"], "curl": ["bash", "-e", "-"]}[language]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ORSAY_")}
    done = subprocess.run(
        command, input=code, capture_output=True, text=True, timeout=60, check=False, env=clean
    )
    assert done.returncode == 0, done.stderr
    assert "Make a cake." in done.stdout
    assert '"good' in done.stdout.replace("\\", "") and "$HOME" in done.stdout
    assert "1.0" in done.stdout


def test_code_of_a_session_goes_on_after_calls_that_failed(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="burn").click()
    page.get_by_role("button", name="Call burn").click()
    calls(page, 1)
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    calls(page, 2)
    page.get_by_role("button", name="Copy as code").click()
    code = page.get_by_role("region", name="the Python code").inner_text()
    done = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the kitchen is on fire" in done.stdout and "It glows." in done.stdout


def test_long_results_in_any_script_arrive_whole(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="Last message").click()
    sentence = ("é水🌊  " * 3_000 + "\n") * 2
    page.get_by_role("textbox", name="Message").fill(sentence)
    page.get_by_role("button", name="Call serve").click()
    page.get_by_text("The episode is finished").wait_for()
    shown = page.get_by_role("log").get_by_text("Served: é水🌊").text_content()
    assert shown == f"Served: {sentence}"


def test_a_call_whose_answer_is_lost_on_the_way_runs_once(visitor: Visitor) -> None:
    page = start(visitor, "guessenvironment?index=1")
    lost: list[str] = []

    def lose(route: Route) -> None:
        if lost:
            route.continue_()
            return
        lost.append(route.fetch().text())  # it ran, and nobody gets its answer
        route.abort("connectionreset")

    visitor.allowed = ["ERR_CONNECTION_RESET"]
    before = int(page.get_by_text("You have").inner_text().partition("You have ")[2].split()[0])
    page.route("**/call", lose)
    page.get_by_role("textbox", name="Number").fill("1")
    page.get_by_role("button", name="Call guess").click()
    calls(page, 1)
    page.get_by_role("log").get_by_text(f"Guesses left: {before - 1}.").wait_for()
    assert f"Guesses left: {before - 1}." in lost[0]


def test_a_session_that_was_ended_elsewhere_says_so(visitor: Visitor, console: ServerProcess) -> None:
    page = start(visitor, "kitchen")
    with page.context.expect_page() as opened:
        page.evaluate("window.open('about:blank')")
    other = opened.value
    other.goto(f"{console.url}/console/live")
    other.get_by_role("button", name="End the session of Kitchen").first.click()  # the newest
    other.get_by_role("button", name="End the session", exact=True).click()
    other.get_by_text("The session has ended.").wait_for()
    other.close()
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    visitor.allowed = ["410"]
    page.get_by_text("The session has ended").wait_for()
    page.get_by_text("Fault: session_gone").wait_for()
    page.get_by_role("button", name="Play again").click()
    page.get_by_text("No calls yet.").wait_for()


def test_a_task_of_ones_own_may_be_played_and_one_that_does_not_fit_is_explained(visitor: Visitor) -> None:
    page = visitor.open("/playground/kitchen")
    page.get_by_text("More: the task itself").click()
    page.get_by_role("region", name="Task train/0").get_by_text("pizza").wait_for()
    page.get_by_text("Custom task", exact=True).click()
    page.get_by_role("textbox", name="Task").fill('{"dish": "stew"}')
    page.get_by_role("button", name="Add a secret").click()
    page.get_by_role("textbox", name="Name of secret 1").fill("OVEN_KEY")
    page.get_by_role("textbox", name="Value of secret 1").fill("hot-and-secret")
    visitor.check_accessibility()
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Make a stew.").wait_for()
    page.get_by_role("button", name="Copy as code").click()
    code = page.get_by_role("region", name="the Python code").inner_text()
    assert "secrets=" in code and "hot-and-secret" not in code
    page.keyboard.press("Escape")
    page.get_by_role("textbox", name="Task").fill("{}")
    visitor.allowed = ["500"]
    page.get_by_role("button", name="Start").click()
    page.get_by_text("The session could not be opened").wait_for()
    page.get_by_text("KeyError").wait_for()


def test_an_episode_is_played_with_the_keyboard_alone(visitor: Visitor) -> None:
    page = visitor.open("/playground/warehouse")
    page.get_by_text("0 to 0").wait_for()

    def to(role: Literal["button", "combobox", "textbox"], name: str) -> None:
        target = page.get_by_role(role, name=name, exact=True)
        target.wait_for()
        for _ in range(40):
            if target.evaluate("each => each === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab never reaches {name}")

    to("button", "Start")
    page.keyboard.press("Enter")
    page.get_by_text("Keep the shelves full.").wait_for()
    to("combobox", "Tool")
    page.keyboard.type("find")
    options = page.get_by_role("option")
    expect(options).to_have_count(1)
    chosen = page.locator("[role=option][data-combobox-selected]")
    for _ in range(50):  # the list is made anew for what was typed, and then nothing in it is chosen
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(100)
        if chosen.count():
            page.keyboard.press("Enter")
            with contextlib.suppress(AssertionError):  # it was made anew in between
                expect(options).to_have_count(0, timeout=2000)
                break
    expect(options).to_have_count(0)
    page.get_by_role("textbox", name="What", exact=True).wait_for()
    to("textbox", "What")
    page.keyboard.type("pears")
    page.keyboard.press("Control+Enter")
    page.get_by_text("No pears in 3 shelves.").wait_for()


def test_leaving_ends_the_session_and_asks_first_while_the_episode_is_under_way(
    visitor: Visitor, console: ServerProcess
) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    calls(page, 1)
    page.get_by_role("link", name="Environments").click()
    page.get_by_role("button", name="Stay").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    visitor.heading("Playground: Kitchen")
    page.get_by_role("link", name="Environments").click()
    page.get_by_role("button", name="End session and leave").click()
    visitor.heading("Environments")
    wait_for_end(visitor, console)


def test_closing_the_tab_ends_the_session(visitor: Visitor, console: ServerProcess) -> None:
    page = start(visitor, "echoenvironment")
    visitor.check()
    page.goto("about:blank")
    visitor.open("/live")
    wait_for_end(visitor, console)


def test_the_playground_works_on_a_phone(phone: Visitor) -> None:
    page = start(phone, "guessenvironment")
    page.get_by_role("textbox", name="Number").fill("1")
    page.get_by_role("button", name="Call guess").click()
    calls(page, 1)
    assert phone.sideways_px() == 0
    phone.check_accessibility()
