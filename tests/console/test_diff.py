"""Two rollouts of one task side by side."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from .browsing import WAIT_MS, Visitor
from .recorded import Recorded

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("recorded")]

expect.set_options(timeout=WAIT_MS)


def pairs(page: Page) -> Locator:
    return page.locator("ol.pairs > li")


def test_calls_that_belong_together_are_side_by_side(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['plain']}&b={recorded['better']}")
    visitor.heading("Compare cave train/7")
    expect(pairs(page)).to_have_count(3)
    page.get_by_role("listitem", name="call 1 of A and call 1 of B: the same").wait_for()
    second = page.get_by_role("listitem", name="call 2 of A and call 2 of B: different")
    assert second.locator("del").all_inner_texts() == ["left", "left"]
    assert second.locator("ins").all_inner_texts() == ["right", "right"]
    expect(second).to_contain_text("reward 0")
    expect(second).to_contain_text("reward 1")
    third = page.get_by_role("listitem", name="nothing in A and call 3 of B: different")
    expect(third).to_contain_text("No such call in A.")
    expect(third).to_contain_text("discarded")
    page.get_by_text("2 of 3 rows differ.").wait_for()
    totals = page.get_by_role("table", name="Totals")
    expect(totals.get_by_role("row", name=re.compile("^Reward "))).to_contain_text("+1")
    expect(totals.get_by_role("row", name=re.compile("^Calls"))).to_contain_text("+1")
    totals.evaluate("each => each.scrollIntoView()")
    visitor.check_look("diff")


def test_only_differences_are_shown_when_asked_and_keys_go_from_one_to_the_next(
    visitor: Visitor, recorded: Recorded
) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['plain']}&b={recorded['better']}")
    expect(pairs(page)).to_have_count(3)
    page.keyboard.press("j")
    expect(page.get_by_role("listitem", name="call 2 of A")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("listitem", name="nothing in A")).to_be_focused()
    page.keyboard.press("d")
    expect(pairs(page)).to_have_count(2)
    assert page.url.endswith("&only=differences")
    expect(page.get_by_role("switch", name="Only differences")).to_be_checked()
    page.go_back()
    expect(pairs(page)).to_have_count(3)


def test_sides_are_swapped_and_chosen_anew(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['plain']}&b={recorded['better']}")
    expect(page.get_by_role("combobox", name="Trajectory A")).to_have_value(recorded["plain"])
    page.get_by_role("button", name="Swap").click()
    page.get_by_role("listitem", name="call 3 of A and nothing in B").wait_for()
    page.get_by_role("link", name="Open trajectory A").click()
    page.wait_for_url(f"**/trajectories/{recorded['better']}")


def test_different_tasks_are_compared_with_a_warning(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['plain']}&b={recorded['trouble']}")
    page.get_by_text("These are not rollouts of one task").wait_for()
    expect(page.get_by_text("fault time_limit: the tool 'wait' took longer")).to_be_visible()
    visitor.check_accessibility()


def test_a_trajectory_does_not_differ_from_itself(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['trouble']}&b={recorded['trouble']}")
    page.get_by_text("No call differs.").wait_for()
    assert page.locator("ins, del").count() == 0


def test_one_alone_says_how_to_choose_another(visitor: Visitor, recorded: Recorded) -> None:
    page = visitor.open(f"/trajectories/diff?a={recorded['plain']}")
    page.get_by_role("heading", name="Select two trajectories").wait_for()
    page.get_by_role("link", name="Go to trajectories").click()
    visitor.heading("Trajectories")


def test_a_comparison_fits_a_phone(phone: Visitor, recorded: Recorded) -> None:
    page = phone.open(f"/trajectories/diff?a={recorded['plain']}&b={recorded['better']}")
    expect(pairs(page)).to_have_count(3)
    assert phone.sideways_px() == 0
    phone.check_accessibility()
