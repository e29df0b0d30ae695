"""The pages about environments, as a person sees them."""

from __future__ import annotations

import re

from .browsing import Visitor
from .test_playground import start


def test_every_environment_is_listed_with_its_splits_and_tools(visitor: Visitor) -> None:
    page = visitor.open("/environments")
    visitor.heading("Environments")
    guess = page.get_by_role("article", name="GuessEnvironment")
    guess.get_by_text("Find the hidden number").wait_for()
    guess.get_by_text("Tools: guess").wait_for()
    guess.get_by_text("runs in process").wait_for()
    assert page.get_by_role("article").count() == 6
    visitor.check_look("environments")


def test_the_console_begins_with_its_environments(visitor: Visitor) -> None:
    page = visitor.open("")
    visitor.heading("Environments")
    assert page.url.endswith("/console/environments")


def test_the_code_of_other_pages_is_there_before_they_are_opened(visitor: Visitor) -> None:
    page = visitor.open("/environments")
    files = "performance.getEntriesByType('resource').map(one => one.name)"
    for name in ("Playground", "Trajectory", "Compare", "Tasks", "Evaluation"):
        page.wait_for_function(f"name => {files}.some(one => one.includes(`/assets/${{name}}-`))", arg=name)
    asked = len(visitor.requests)
    page.get_by_role("link", name="Runs", exact=True).click()
    visitor.heading("Runs")
    assert not [each for each in visitor.requests[asked:] if each.endswith(".js")]


def test_an_environment_shows_the_sizes_of_its_splits_and_the_arguments_of_its_tools(
    visitor: Visitor,
) -> None:
    page = visitor.open("/environments")
    page.get_by_role("link", name="Details of Kitchen").click()
    visitor.heading("Kitchen")
    page.get_by_role("row", name="train train 2").wait_for()
    page.get_by_role("row", name="test test 1").wait_for()
    order = page.get_by_role("region", name="Arguments of order")
    order.get_by_role("row", name='size one of "small", "large" required').wait_for()
    order.get_by_role("row", name="toppings[].grams whole number, 1 to 100 20").wait_for()
    order.get_by_role("row", name=re.compile("address.street text required Street and number.")).wait_for()
    visitor.check_look("environment")
    page.go_back()
    visitor.heading("Environments")
    page.go_forward()
    visitor.heading("Kitchen")


def test_an_environment_leads_to_what_was_played_in_it(visitor: Visitor) -> None:
    page = start(visitor, "kitchen")
    page.get_by_role("tab", name="look").click()
    page.get_by_role("button", name="Call look").click()
    page.get_by_text("It glows.").wait_for()
    page.get_by_role("button", name="End the session").click()
    page.get_by_role("button", name="Play again").wait_for()
    visitor.open("/environments/kitchen")
    page.get_by_role("main").get_by_role("link", name="Trajectories", exact=True).click()
    page.wait_for_url("**/trajectories?environment=Kitchen")
    visitor.heading("Trajectories")
    page.get_by_role("main").get_by_text("playground").first.wait_for()


def test_a_split_leads_to_the_playground(visitor: Visitor) -> None:
    page = visitor.open("/environments/kitchen")
    page.get_by_role("link", name="test", exact=True).click()
    visitor.heading("Playground: Kitchen")
    assert page.url.endswith("/console/playground/kitchen?split=test")


def test_an_unknown_environment_and_an_unknown_page_say_so(visitor: Visitor) -> None:
    page = visitor.open("/environments/nowhere")
    page.get_by_text("hosts no environment named “nowhere”").wait_for()
    page.get_by_role("link", name="Show hosted environments").click()
    visitor.heading("Environments")
    visitor.open("/no/such/page")
    visitor.heading("Page not found")


def test_the_keyboard_reaches_the_content_and_the_pages(visitor: Visitor) -> None:
    page = visitor.open("/environments")
    visitor.heading("Environments")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    assert skip.evaluate("each => each === document.activeElement")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("link", name="Live").focus()
    page.keyboard.press("Enter")
    visitor.heading("Live")
    assert page.evaluate("document.activeElement.id") == "main"


def test_colours_follow_the_system_until_they_are_chosen_and_the_choice_is_remembered(
    visitor: Visitor,
) -> None:
    page = visitor.open("/environments")
    visitor.heading("Environments")
    visitor.in_both_schemes(lambda scheme: None)
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    page.get_by_role("button", name="Colours: dark").wait_for()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"
    page.get_by_role("button", name="Colours: dark").wait_for()


def test_the_pages_fit_a_phone(phone: Visitor) -> None:
    page = phone.open("/environments")
    phone.heading("Environments")
    page.get_by_role("article", name="Kitchen").wait_for()
    assert phone.sideways_px() == 0
    phone.check_accessibility()
    page.get_by_role("button", name="Navigation").click()
    page.get_by_role("link", name="Live").click()
    phone.heading("Live")
    assert phone.sideways_px() == 0
    phone.open("/environments/kitchen")
    page.get_by_role("region", name="Arguments of order").wait_for()
    assert phone.sideways_px() == 0
