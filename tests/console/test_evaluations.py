"""Evaluations, and the comparison of two, as a person sees them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from orsay_eval import compare
from playwright.sync_api import expect

from tests.support.server_process import ServerProcess

from .browsing import WAIT_MS, Visitor
from .conftest import console_server
from .recorded import report_of

pytestmark = pytest.mark.process

expect.set_options(timeout=WAIT_MS)

BASELINE, TUNED = report_of("baseline", 0.4), report_of("tuned", 0.8)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that was sent two reports, as ``orsay eval`` sends them."""
    with console_server(str(tmp_path_factory.mktemp("evaluations") / "journal.db")) as process:
        for report in (BASELINE, TUNED):
            answer = httpx.post(
                f"{process.url}/console/api/evaluations",
                content=report.model_dump_json(),
                headers={"Content-Type": "application/json"},
                timeout=60,
            )
            assert answer.status_code == 200, answer.text
        yield process


def test_evaluations_are_listed_and_one_shows_what_was_measured(visitor: Visitor) -> None:
    page = visitor.open("/evaluations")
    visitor.heading("Evaluations")
    row = page.get_by_role("row", name=re.compile("model-tuned"))
    expect(row).to_contain_text("0.8 (0.6 to 1)")
    expect(row).to_contain_text("80% at 2")
    visitor.check_look("evaluations")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    visitor.heading("tuned")
    for text in (
        "95%: 60% to 100%",
        "scored, of 40: 20 tasks, 2 attempts",
        "1,231 an episode, 12,000 from the cache",
        "median; p95 1.2 s, longest 2 s",
        "pass@2 80% (60% to 100%)",
    ):
        page.get_by_text(text).wait_for()
    fault = page.get_by_role("alert")
    expect(fault).to_contain_text("1 episode was lost to faults")
    expect(fault).to_contain_text("Retried after: 2 overloaded.")
    tasks = page.get_by_role("region", name="Tasks")
    expect(tasks.get_by_role("row")).to_have_count(21)
    page.get_by_label("Order of the tasks").select_option("faults")
    expect(tasks.get_by_role("row").nth(1)).to_contain_text("worker_lost")
    visitor.check_look("evaluation")
    link = tasks.get_by_role("link", name="test:19")
    assert (link.get_attribute("href") or "").endswith(
        "/trajectories?environment=guess&run=eval+tuned&task=test%3A19"
    )


def test_an_evaluation_is_saved_as_json_and_csv(visitor: Visitor) -> None:
    page = visitor.open("/evaluations")
    page.get_by_role("link", name="baseline").click()
    visitor.heading("baseline")
    with page.expect_download() as saved:
        page.get_by_role("button", name="JSON").click()
    report = json.loads(saved.value.path().read_text())
    assert report["settings"] == BASELINE.settings
    assert len(report["episodes"]) == 40
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    with saved.value.path().open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["task"], row["reward"], row["fault"]) for row in rows] == [
        (each.task, "" if each.reward is None else f"{each.reward:g}", each.fault or "")
        for each in BASELINE.episodes
    ]


def test_two_evaluations_are_compared_as_the_command_line_does_it(visitor: Visitor) -> None:
    page = visitor.open("/evaluations")
    page.get_by_role("checkbox", name="Compare tuned").check()
    page.get_by_role("checkbox", name="Compare baseline").check()
    page.get_by_role("link", name="Compare 2 evaluations").click()
    visitor.heading("Compare two evaluations")
    want = compare(BASELINE, TUNED).reward
    assert want.low is not None
    assert want.high is not None
    verdict = page.get_by_text(re.compile("^B is better than A by"))
    expect(verdict).to_contain_text(
        f"+{want.difference:.3g} (+{want.low:.3f} to +{want.high:.3f}), which is more than noise"
    )
    expect(verdict).to_contain_text(f"p = {want.p:.3f}".rstrip("0"))
    better = page.get_by_role("region", name="Better in B: 8")
    expect(better.get_by_role("row")).to_have_count(9)
    page.get_by_role("heading", name="Worse in B: 0").wait_for()
    visitor.check_look("compare-evaluations")
    page.go_back()
    expect(page.get_by_role("checkbox", name="Compare tuned")).to_be_checked()


def test_an_evaluation_does_not_differ_from_itself(visitor: Visitor) -> None:
    (_, older) = visitor.api("evaluations")
    page = visitor.open(f"/evaluations/compare?a={older['id']}&b={older['id']}")
    page.get_by_text("The difference of 0 may well be noise (p = 1).").wait_for()
    visitor.open("/evaluations/compare")
    page.get_by_role("heading", name="Select two evaluations").wait_for()
    page.get_by_label("Evaluation A").select_option(older["id"])
    expect(page).to_have_url(re.compile(f"a={older['id']}"))
    visitor.check_accessibility()


def test_an_unknown_evaluation_is_reported(visitor: Visitor) -> None:
    visitor.allowed.append("404")
    page = visitor.open("/evaluations/1")
    page.get_by_role("alert").get_by_text("the journal has nothing at").wait_for()
    visitor.check_accessibility()


def test_evaluations_fit_a_phone(phone: Visitor) -> None:
    newer, older = phone.api("evaluations")
    for path, text in (
        ("", "0.8 (0.6 to 1)"),
        (f"/{newer['id']}", "Distribution of rewards"),
        (f"/compare?a={older['id']}&b={newer['id']}", "B is better than A by"),
    ):
        page = phone.open(f"/evaluations{path}")
        page.get_by_text(text).first.wait_for()
        assert phone.sideways_px() == 0
        phone.check_accessibility()
