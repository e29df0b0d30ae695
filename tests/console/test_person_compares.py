"""A person plays, finds what they played, and compares two runs, all by clicking."""

from __future__ import annotations

import csv
import random
import re

import pytest
from orsay_client import Client
from playwright.sync_api import expect

from tests.support.server_process import ServerProcess

from .browsing import WAIT_MS, Visitor
from .test_playground import play_guess

pytestmark = pytest.mark.process

expect.set_options(timeout=WAIT_MS)

_STEPS, _GROUP = 4, 3


def train(url: str, run: str, *, skill: bool) -> None:
    """A run as a trainer makes it: steps of a few rollouts. With skill, the range is halved."""
    dice = random.Random(run)
    with Client(url) as client:
        environment = client.environment("GuessEnvironment")
        for step in range(_STEPS):
            for rollout in range(_GROUP):
                labels: dict[str, str | int] = {"run": run, "step": step, "rollout": f"{step}-{rollout}"}
                with environment.session(split="train", index=step, run_labels=labels) as session:
                    low, high = map(int, re.findall(r"from (-?\d+) to (-?\d+)", str(session.prompt()))[0])
                    for _ in range(12):
                        number = (low + high) // 2 if skill else dice.randint(low, low + 2)
                        output = session.call("guess", {"number": number})
                        if output.finished:
                            break
                        text = str(output.blocks[0])
                        low, high = (number + 1, high) if "higher" in text else (low, number - 1)


def test_a_person_plays_guess_finds_the_trajectory_and_compares_two_runs(
    visitor: Visitor, console: ServerProcess
) -> None:
    page = visitor.open("/environments")
    page.get_by_role("link", name="Play GuessEnvironment").click()
    visitor.heading("Playground: GuessEnvironment")
    page.get_by_role("textbox", name="Task", exact=True).fill("3")
    page.get_by_role("button", name="Start").click()
    guesses = play_guess(page)
    page.get_by_text("The episode is finished").wait_for()

    page.get_by_role("link", name="Trajectories", exact=True).click()
    visitor.heading("Trajectories")
    page.get_by_role("combobox", name="Run").fill("playground")
    page.get_by_label("Finished").select_option("true")
    expect(page).to_have_url(re.compile(r"\?finished=true&run=playground$|\?run=playground&finished=true$"))
    page.get_by_role("link", name="GuessEnvironment train/3").click()
    visitor.heading("GuessEnvironment train/3")
    calls = page.get_by_role("region", name="Calls").get_by_role("listitem")
    expect(calls).to_have_count(guesses)
    expect(calls.last).to_contain_text("Correct")
    expect(calls.last).to_contain_text("reward 1")
    expect(calls.last).to_contain_text("finished")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("playground")

    train(console.url, "luck", skill=False)
    train(console.url, "halving", skill=True)
    page.get_by_role("link", name="Runs", exact=True).click()
    visitor.heading("Runs")
    page.get_by_role("checkbox", name="Compare luck").check()
    page.get_by_role("checkbox", name="Compare halving").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    visitor.heading("Compare 2 runs")
    totals = page.get_by_role("region", name="Whole runs")
    expect(totals.get_by_role("row", name="halving")).to_contain_text("more than chance")
    with page.expect_download() as saved:
        page.get_by_role("button", name="All as CSV").click()
    with saved.value.path().open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["run"], int(row["step"]), int(row["episodes"])) for row in rows] == [
        (run, step, _GROUP) for run in ("luck", "halving") for step in range(_STEPS)
    ]
    solved = {
        run: sum(float(row["success"]) for row in rows if row["run"] == run) for run in ("luck", "halving")
    }
    assert solved["halving"] > solved["luck"]

    page.get_by_role("link", name="Tasks", exact=True).click()
    visitor.heading("Tasks")
    page.get_by_label("Run").select_option("halving")
    page.get_by_role("heading", name=f"{_STEPS} tasks").wait_for()
    page.go_back()
    page.go_back()
    visitor.heading("Compare 2 runs")
